"""The good twins of the planted offenders: nothing here touches the driver on import."""
