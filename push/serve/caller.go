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
	st.client.Caller, err = st.srv.cfg.Authenticate(ctx)
	switch {
	case errors.Is(err, attest.ErrUnavailable): // not the credential's fault: it may be accepted later
		return status.Errorf(codes.Unavailable, "not authenticated: %v", err)
	case err != nil:
		return status.Errorf(codes.Unauthenticated, "not authenticated: %v", err)
	}
	st.client.Identity = st.client.Caller.ID.String()
	st.client.MinRevision, st.places = agentapi.DecodeMinRevision(ctx)
	return st.enter()
}

// newest is where the newest state that this server has read stands, for clients that understand it; empty: they are not told.
func (st *stream) newest() string {
	if !st.places || st.srv.cfg.Place == nil {
		return ""
	}
	return st.srv.cfg.Place()
}

// refused says why its caller is served no longer; nil: it is. The error is a gRPC status.
func (st *stream) refused() error {
	if st.client.Caller.ID.IsZero() || st.srv.cfg.Refused == nil {
		return nil
	}
	if err := st.srv.cfg.Refused(st.client.Caller); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// recheck ends the stream where its caller is refused by now.
func (st *stream) recheck() (ended bool) {
	err := st.refused()
	return err != nil && st.kill(err)
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
