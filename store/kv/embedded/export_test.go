package embedded

import "context"

// Look performs the check that Run performs every second.
func (srv *Server) Look(ctx context.Context) { srv.checkRoom(ctx) }

// Enough is the number of free bytes from which etcd writes again.
const Enough = enough
