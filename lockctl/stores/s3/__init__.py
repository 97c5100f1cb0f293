"""S3, Amazon's and others': requests for objects of one bucket, and cells in them."""
