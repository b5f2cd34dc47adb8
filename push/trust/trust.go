// Package trust gives the proxies of the mesh what the keyring says is trusted: roots and revocation lists, as resources of their agents,
// and as a file for agents on the same machine.
//
// Owns: the encoded resources, and root-cert.pem in the data directory.  Reads: states of ca/keyring.  Never: roots without the
// revocation lists that belong to them.
package trust

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/serve"
)

// pcdsURL is the type by which stock agents ask for the mesh's trust; navarch-agent asks for agentapi.TrustURL.
const pcdsURL = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"

// Keyring is what is followed; Changed is closed when State gives another.
type Keyring interface {
	State() *keyring.State
	Changed() <-chan struct{}
}

// Server is what pushes; nil: this process serves no streams.
type Server interface {
	AgentResourceChanged(typeURL string)
	Recheck() (ended int)
}

// Trust is what agents are pushed of the keyring: roots and revocation lists. Where no keyring is followed it stays empty, and agents
// keep what they have.
type Trust struct {
	dir               string
	validation, roots atomic.Pointer[serve.AgentResource]
	rooted            atomic.Bool // root-cert.pem was written
}

// New makes one that keeps root-cert.pem in a directory; empty: there is no such file.
func New(dir string) *Trust { return &Trust{dir: dir} }

// AgentTypes are what agents may subscribe to.
func (t *Trust) AgentTypes() []serve.AgentType {
	give := func(p *atomic.Pointer[serve.AgentResource]) func(serve.Client, serve.View) *serve.AgentResource {
		return func(serve.Client, serve.View) *serve.AgentResource { return p.Load() }
	}
	return []serve.AgentType{{TypeURL: agentapi.TrustURL, Resource: give(&t.validation)}, {TypeURL: pcdsURL, Resource: give(&t.roots)}}
}

// take encodes a state, once for all clients, and says which types have another resource now. A sealed state changes
// nothing: what it knows of the roots has no lists with it, and without lists what was revoked would be trusted again.
func (t *Trust) take(s *keyring.State) (changed []string, err error) {
	if s.Sealed != nil || len(s.Bundle) == 0 {
		return nil, nil
	}
	bundle := agentapi.Trust{Roots: issue.EncodeCertificates(s.Bundle...)}
	for _, list := range s.CRLs {
		bundle.Lists = append(bundle.Lists, issue.EncodeCRL(list.DER)...)
	}
	pcds := &meshv1alpha1.ProxyConfig{}
	for _, root := range s.Bundle {
		pcds.CaCertificatesPem = append(pcds.CaCertificatesPem, string(issue.EncodeCertificates(root)))
	}
	for _, one := range []struct {
		url, name string
		message   proto.Message
		at        *atomic.Pointer[serve.AgentResource]
	}{{agentapi.TrustURL, agentapi.TrustName, bundle.Encode(), &t.validation}, {pcdsURL, "", pcds, &t.roots}} {
		next, err := serve.EncodeAgentResource(one.name, one.message)
		if err != nil {
			return changed, err
		}
		if was := one.at.Load(); was == nil || was.Version != next.Version {
			one.at.Store(next)
			changed = append(changed, one.url)
		}
	}
	return changed, nil
}

// Run hands every new state of the keyring to those who depend on it, until ctx ends: agents (by push), streams, which may belong to
// somebody who is revoked now, and root-cert.pem in the data directory. An error is a file that cannot be written.
func (t *Trust) Run(ctx context.Context, ring Keyring, server Server) error {
	written := ""
	for {
		changed := ring.Changed()
		state := ring.State()
		urls, err := t.take(state)
		if err != nil {
			return err
		}
		if server != nil {
			for _, url := range urls {
				server.AgentResourceChanged(url)
			}
			server.Recheck() // identities and certificates may be revoked that were not
		}
		if written, err = t.writeRoots(state, written); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// RootsWritten says whether root-cert.pem has been written since this process started.
func (t *Trust) RootsWritten() bool { return t.rooted.Load() }

// writeRoots keeps root-cert.pem in the data directory: what agents on this machine verify the control plane against. It
// returns what is in the file now. It is not synced: each start writes it again, and whoever waits for it should not wait for the disk.
func (t *Trust) writeRoots(state *keyring.State, written string) (string, error) {
	roots := string(issue.EncodeCertificates(state.Bundle...))
	if t.dir == "" || roots == "" || roots == written {
		return written, nil
	}
	path := filepath.Join(t.dir, "root-cert.pem")
	if err := os.WriteFile(path+".new", []byte(roots), 0o644); err != nil {
		return written, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return written, err
	}
	t.rooted.Store(true)
	return roots, nil
}
