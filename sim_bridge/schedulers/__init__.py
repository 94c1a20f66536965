"""Networks whose ports have schedulers: replays of schedules by least slack (UPS), and flows of RC3."""
