"""The head of a cluster, reached from outside through its dashboard: HTTP and tokens, the mailbox
by which short commands are answered, the service that answers them."""
