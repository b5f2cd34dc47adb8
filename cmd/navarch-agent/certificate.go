package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	caagent "navarch.io/navarch/ca/agent"
	"navarch.io/navarch/store/socket"
)

// identityKey of the node's metadata says that this proxy gets its certificates by SDS from its agent, so that the control
// plane may ask it for mTLS.
const identityKey, identitySDS, identityNone = "NAVARCH_IDENTITY", "sds", "none"

// filesKey says that the agent serves certificates of files by SDS, revocation lists too, so that the control plane names them as Istio's does, and does
// not have Envoy read the files, which refuses a listener or cluster where there is no such file.
const filesKey = "NAVARCH_FILES"

// claim states in the node that the agent serves certificates. Without it the node states that it has none: a node with Istio's version alone is one of
// Istio's agents, which always have some.
func (i *identity) claim() {
	i.node.Metadata.Fields[identityKey] = structpb.NewStringValue(identitySDS)
	i.node.Metadata.Fields[filesKey] = structpb.NewStringValue(identitySDS)
}

// sdsSocket is where Envoy gets its certificates; empty on plain text.
func (o *options) sdsSocket() string {
	if o.plaintext {
		return ""
	}
	return o.sds()
}

// newIdentity is the agent's identity half: its key never leaves this process but to Envoy.
func newIdentity(o *options, id *identity, refused func(socket.Peer), log *slog.Logger) (*caagent.Agent, error) {
	name, err := id.spiffeID()
	if err != nil {
		return nil, err
	}
	a, err := caagent.New(caagent.Config{
		Address: cmp.Or(o.caAddress, o.discovery), ServerName: o.san, RootFile: o.rootCert, RootPoll: time.Second,
		TokenFile: o.tokenFile, Metadata: id.headers, Socket: o.sds(), Refused: refused, OutputDir: o.outputCerts, Log: log,
		Name: name, TTL: o.certTTL, RenewAt: o.renewAt,
	})
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return a, nil
}

// certificatePage is what the debug page shows of the identity.
type certificatePage struct {
	URI         string     `json:"uri,omitempty"`
	Serial      string     `json:"serial,omitempty"`
	NotAfter    *time.Time `json:"notAfter,omitempty"`
	LastFailure string     `json:"lastFailure,omitempty"`
	// Files are the secrets of files that Envoy asks for, and that are not served as the files are now.
	Files []caagent.FileFault `json:"files,omitempty"`
}

func (a *agent) certificate() *certificatePage {
	if a.identity == nil {
		return nil
	}
	page := &certificatePage{Files: a.identity.FileFaults()}
	if now := a.identity.Identity(); now != nil {
		page.URI, page.Serial, page.NotAfter = now.URI, now.Serial, &now.NotAfter
	}
	if _, err := a.identity.LastFailure(); err != nil {
		page.LastFailure = err.Error()
	}
	return page
}
