"""Messages that Kafka has and kio's newest release does not, in kio's form: a module for each API and version.

``message_classes`` looks here after kio. A module is removed when kio has its message.
"""
