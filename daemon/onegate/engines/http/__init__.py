"""What engines have in common that are servers of somebody else's, asked over HTTP."""
