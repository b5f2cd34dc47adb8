package embedded

import "context"

// Look does at once what Run does every second.
func (srv *Server) Look(ctx context.Context) { srv.look(ctx) }

// Enough is how many bytes have to be free for etcd to write again.
const Enough = enough
