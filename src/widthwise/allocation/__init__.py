"""Room: allocation."""
