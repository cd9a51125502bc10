"""The only room where records meet noise: bounds of what one record may add, sessions that release, plans of them."""
