package embedded

import "context"

// Look does at once what Run does every second.
func (srv *Server) Look(ctx context.Context) { srv.look(ctx) }

// Enough is the number of free bytes from which etcd writes again.
const Enough = enough
