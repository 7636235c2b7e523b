"""The Spark session and what it needs from outside: Java and the JVM connectors."""
