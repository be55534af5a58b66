"""Kafka's command-line scripts (``kafka-topics.sh`` and others) without a JVM: Kafka's options, output and exit codes.

``milena scripts FOLDER`` writes them into a folder, as in ``/opt/kafka/bin`` of Milena's image. Each runs
``milena.scripts.running`` with its name. docs/scripts.md lists scripts and options.
"""
