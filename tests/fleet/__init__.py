"""Several devices on one network, provisioned by the playbooks as their operators would."""
