"""What each database needs to compare tokens by itself: the text of ``lockctl fence sql``."""
