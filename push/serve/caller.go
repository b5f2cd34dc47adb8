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

// authenticate finds out who the caller is, from the connection and the call's metadata.
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
	st.caller, err = st.srv.cfg.Authenticate(ctx)
	switch {
	case errors.Is(err, attest.ErrUnavailable): // not the credential's fault: it may be accepted later
		return status.Errorf(codes.Unavailable, "not authenticated: %v", err)
	case err != nil:
		return status.Errorf(codes.Unauthenticated, "not authenticated: %v", err)
	}
	st.client.Identity, st.client.Ends, st.client.Pod, st.client.Cluster = st.caller.ID.String(), st.caller.NotAfter, st.caller.Pod, st.caller.Cluster
	st.client.MinRevision = agentapi.DecodeMinRevision(ctx)
	return st.enter()
}

// recheck ends the stream where its caller is refused by now.
func (st *stream) recheck() (ended bool) {
	if st.caller.ID.IsZero() || st.srv.cfg.Refused == nil {
		return false
	}
	err := st.srv.cfg.Refused(st.caller)
	return err != nil && st.kill(status.Error(codes.PermissionDenied, err.Error()))
}

// maxNodeID bounds the id that is kept for a client, in logs too. Names of Pods and namespaces, an address and a domain, of which
// istio's id is made, have fewer bytes.
const maxNodeID = 1024

// nodeID is the id of a first request's node; nil: it has none.
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
