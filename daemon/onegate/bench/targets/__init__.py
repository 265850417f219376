"""What can be measured, one module each, behind the one small interface of `base`."""
