"""Google Cloud Storage: requests for objects of one bucket, and cells in them."""
