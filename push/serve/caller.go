package serve

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/view"
)

// authenticate determines the caller's identity from the connection and the call's metadata, and counts the stream
// (enter). The error is a gRPC status.
func (st *stream) authenticate(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if ok {
		_, st.client.Secure = p.AuthInfo.(credentials.TLSInfo)
	}
	if ok && p.Addr != nil {
		st.client.Addr = p.Addr.String()
		if a, ok := p.Addr.(*address); ok {
			st.hangUp = a.close
		}
	}
	var err error
	st.client.Caller, err = st.srv.cfg.Authenticate(ctx)
	switch {
	case errors.Is(err, attest.ErrUnavailable): // the credential may be accepted later
		return status.Errorf(codes.Unavailable, "not authenticated: %v", err)
	case err != nil:
		return status.Errorf(codes.Unauthenticated, "not authenticated: %v", err)
	}
	st.client.Identity = st.client.Caller.ID.String()
	st.client.MinRevision, st.places = agentapi.DecodeMinRevision(ctx)
	return st.enter()
}

// newest returns the position of this server's newest state in the sequence of leaders' writes (Config.Place). It
// returns "" for clients that do not understand such positions.
func (st *stream) newest() string {
	if !st.places || st.srv.cfg.Place == nil {
		return ""
	}
	return st.srv.cfg.Place()
}

// refused returns the gRPC status with which the caller is refused, or nil.
func (st *stream) refused() error {
	if st.client.Caller.ID.IsZero() || st.srv.cfg.Refused == nil {
		return nil
	}
	if err := st.srv.cfg.Refused(st.client.Caller); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// recheck ends the stream if its caller is refused now.
func (st *stream) recheck() (ended bool) {
	err := st.refused()
	return err != nil && st.kill(err)
}

// maxNodeID is the maximum length in bytes of a client's node ID. The server keeps and logs this ID. Istio's node IDs
// are shorter: they consist of the names of a Pod and a namespace, an address and a domain.
const maxNodeID = 1024

// nodeID returns the ID in the encoded node of a stream's first request. It fails if there is no node, if the node is
// malformed, or if the ID is missing, too long or invalid.
func nodeID(raw []byte) (string, error) {
	if raw == nil {
		return "", errors.New("the first request of a stream has no node")
	}
	id, err := view.ID(raw)
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", errors.New("node.id: is empty")
	case len(id) > maxNodeID:
		return "", fmt.Errorf("node.id: %d bytes, %d at most", len(id), maxNodeID)
	}
	return id, nil
}
