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

// identityKey is a key of the node's metadata. The value identitySDS declares that this proxy receives its certificates
// by SDS from its agent. The control plane then configures mTLS for the proxy. The value identityNone declares the
// opposite.
const identityKey, identitySDS, identityNone = "NAVARCH_IDENTITY", "sds", "none"

// filesKey declares that the agent reads certificates and revocation lists from files and serves them by SDS. The
// control plane then refers to the files by SDS names, as Istio's control plane does. Without this key Envoy would read
// the files itself, and refuse a listener or cluster whose file is absent.
const filesKey = "NAVARCH_FILES"

// ownersKey declares that the agent bounds, for each other namespace, the secrets from files that the objects of that
// namespace require. The control plane then states the namespace in the names of such secrets.
const ownersKey = "NAVARCH_FILE_OWNERS"

// claim sets identityKey, filesKey and ownersKey in the node's metadata. Without this call, identityKey is "none"
// (complement). Only Istio's agents omit the key, because their proxies always have certificates.
func (i *identity) claim() {
	i.node.Metadata.Fields[identityKey] = structpb.NewStringValue(identitySDS)
	i.node.Metadata.Fields[filesKey] = structpb.NewStringValue(identitySDS)
	i.node.Metadata.Fields[ownersKey] = structpb.NewStringValue("true")
}

// sdsSocket returns the path of the socket from which Envoy gets its certificates. The result is empty with a plaintext
// control plane.
func (o *options) sdsSocket() string {
	if o.plaintext {
		return ""
	}
	return o.sds()
}

// newIdentity returns the agent that requests the workload's certificate and serves it to Envoy by SDS. The private key
// leaves this process only to Envoy and to --output-certs. Errors: the environment's identity is not a SPIFFE ID, or a
// setting is missing or out of range (caagent.New).
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

// certificatePage is the part of the debug page about the workload's certificate.
type certificatePage struct {
	URI         string     `json:"uri,omitempty"`
	Serial      string     `json:"serial,omitempty"`
	NotAfter    *time.Time `json:"notAfter,omitempty"`
	LastFailure string     `json:"lastFailure,omitempty"`
	// Files lists the secrets that Envoy subscribes to and whose present files cannot be served.
	Files []caagent.FileFault `json:"files,omitempty"`
}

// certificate returns the part of the debug page about the certificate, or nil with a plaintext control plane.
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
