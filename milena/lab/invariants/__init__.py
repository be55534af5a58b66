"""What must hold in a simulated cluster after every event. ``watch.Watch`` looks; the other modules are pure rules."""
