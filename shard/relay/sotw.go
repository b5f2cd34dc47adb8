package relay

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// sotw carries a state-of-the-world stream unchanged. The stream ends when its upstream (its connection to the control
// plane) ends. The relay could not continue it on another upstream, because its requests do not state the version of
// each resource. The parameter streamID is the number of Envoy's stream.
func (r *Relay) sotw(down grpc.ServerStream, streamID uint64) error {
	st := r.stats.open(streamID, methodSotW, r.cfg.Target)
	err := r.carrySotW(down, st)
	st.end(err)
	return err
}

func (r *Relay) carrySotW(down grpc.ServerStream, st *stream) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	if err := hold(ctx, r.pace.wait(time.Now())); err != nil {
		return err
	}
	up, closeConn, err := r.connect(ctx, st, r.cfg.Target, methodSotW)
	if err != nil {
		if ctx.Err() == nil {
			r.pace.failed(time.Now())
			r.lost(r.cfg.Target, err)
		}
		return r.unavailable(err)
	}
	defer closeConn()
	connected := time.Now()
	r.stats.connected(st, connected)
	r.cfg.Log.Info("connected to the control plane", "address", r.cfg.Target)

	go pumpUp(down, up, st, cancel)
	err = pumpDown(up, down, st)
	if ctx.Err() != nil && down.Context().Err() != nil {
		return status.FromContextError(down.Context().Err()).Err() // Envoy left; the control plane is not the cause
	}
	r.recordOutcome(st, connected)
	r.lost(r.cfg.Target, err)
	return ending(err)
}

// pumpUp carries Envoy's requests until either side ends. After an error of the control plane, pumpDown fails too and
// receives the status.
func pumpUp(down grpc.ServerStream, up grpc.ClientStream, st *stream, cancel context.CancelFunc) {
	for {
		var f frame
		if err := down.RecvMsg(&f); err != nil {
			if errors.Is(err, io.EOF) {
				up.CloseSend()
			} else {
				cancel()
			}
			return
		}
		n := f.data.Len()
		if err := up.SendMsg(&f); err != nil {
			return
		}
		st.sent(n)
	}
}

// pumpDown carries the control plane's responses until either side ends. It returns the error of receiving or sending;
// io.EOF means that the control plane ended the stream.
func pumpDown(up grpc.ClientStream, down grpc.ServerStream, st *stream) error {
	for {
		var f frame
		if err := up.RecvMsg(&f); err != nil {
			return err
		}
		n := f.data.Len()
		if err := down.SendMsg(&f); err != nil {
			return err
		}
		st.received(n)
	}
}
