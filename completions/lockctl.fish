function _lockctl_completion;
    set -l token (commandline -ct);
    # what is offered for --option=value must be all of the word
    set -l before (string match -r -- '^--[^=]+=' $token);
    set -l response (env _LOCKCTL_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD="$token" lockctl);

    for completion in $response;
        set -l metadata (string split -m 1 "," $completion);

        if test $metadata[1] = "dir";
            for found in (__fish_complete_directories "$metadata[2]");
                echo "$before$found";
            end;
        else if test $metadata[1] = "file";
            for found in (__fish_complete_path "$metadata[2]");
                echo "$before$found";
            end;
        else if test $metadata[1] = "command";
            set -l words (commandline -opc);
            set -l first (math (count $words) - $metadata[2] + 1);
            complete -C (string join -- " " (string escape -- $words[$first..-1]) "$token");
        else if test $metadata[1] = "plain";
            echo "$before$metadata[2]";
        end;
    end;
end;

complete --no-files --command lockctl --arguments "(_lockctl_completion)";
