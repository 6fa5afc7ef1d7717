"""What builds datasets and timelines from plug-ins."""
