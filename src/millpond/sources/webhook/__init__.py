"""The webhook source: records that are posted to the app's own port."""
