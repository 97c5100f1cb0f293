/* The command that the measurements run under a lock. It starts in a fraction of a millisecond.

   stamp               ends at once
   stamp FILE          writes to FILE when it was started, in seconds of CLOCK_MONOTONIC
   stamp FILE FIFO     first waits until whoever opens FIFO has closed it again */

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct timespec now;
    char text[64];
    int file;

    if (count < 2)
        return 0;
    if (count > 2) {
        file = open(words[2], O_RDONLY);
        if (file < 0)
            return 1;
        while (read(file, text, sizeof text) > 0)
            ;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    count = snprintf(text, sizeof text, "%lld.%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    file = open(words[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    return write(file, text, count) != count;
}
