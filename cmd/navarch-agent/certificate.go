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
const identityKey, identitySDS = "NAVARCH_IDENTITY", "sds"

// claim says so in the node.
func (i *identity) claim() {
	i.node.Metadata.Fields[identityKey] = structpb.NewStringValue(identitySDS)
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
}

func (a *agent) certificate() *certificatePage {
	if a.identity == nil {
		return nil
	}
	page := &certificatePage{}
	if now := a.identity.Identity(); now != nil {
		page.URI, page.Serial, page.NotAfter = now.URI, now.Serial, &now.NotAfter
	}
	if _, err := a.identity.LastFailure(); err != nil {
		page.LastFailure = err.Error()
	}
	return page
}
