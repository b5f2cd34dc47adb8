// Package trust gives the proxies of the mesh what the keyring says is trusted: roots and revocation lists, as
// resources of their agents, and as a file for agents on the same machine. Stock agents also get the roots of other CAs
// that the mesh configuration names.
//
// Owns: the encoded resources, and root-cert.pem in the data directory.  Reads: states of ca/keyring.  Never: roots
// without the revocation lists that belong to them.
package trust

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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

// Trust has the resources that agents are pushed: roots and revocation lists of the keyring, stock agents roots of
// other CAs too. Where no keyring is followed it has the latter alone, and agents keep what they have.
type Trust struct {
	dir               string
	validation, roots atomic.Pointer[serve.AgentResource]
	rooted            atomic.Bool // root-cert.pem was written

	mu     sync.Mutex // guards what roots is made of, and its making
	own    []string   // roots of the keyring, PEM
	others []string   // of other CAs
}

// New makes one that keeps root-cert.pem in a directory; empty: there is no such file.
func New(dir string) *Trust { return &Trust{dir: dir} }

// AgentTypes are what agents may subscribe to.
func (t *Trust) AgentTypes() []serve.AgentType {
	give := func(p *atomic.Pointer[serve.AgentResource]) func(serve.Client, serve.Proxy) *serve.AgentResource {
		return func(serve.Client, serve.Proxy) *serve.AgentResource { return p.Load() }
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
	is, err := replace(&t.validation, agentapi.TrustName, bundle.Encode())
	if err != nil {
		return nil, err
	}
	if is {
		changed = append(changed, agentapi.TrustURL)
	}
	var own []string
	for _, root := range s.Bundle {
		own = append(own, string(issue.EncodeCertificates(root)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = own
	if is, err = t.all(); is {
		changed = append(changed, pcdsURL)
	}
	return changed, err
}

// Others takes the roots of other CAs (PEM, each one certificate or several), of which stock agents are told beside the
// keyring's, and says whether they are told something else now. Where there is no keyring, and none of these, agents
// keep what they have. Errors are those of encoding.
func (t *Trust) Others(roots []string) (changed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = roots
	return t.all()
}

// all makes the resource of stock agents again. With the lock.
func (t *Trust) all() (changed bool, err error) {
	pcds := &meshv1alpha1.ProxyConfig{CaCertificatesPem: slices.Concat(t.own, t.others)}
	if len(pcds.CaCertificatesPem) == 0 {
		return false, nil
	}
	return replace(&t.roots, "", pcds)
}

// replace encodes a resource, and says whether it is another one than before.
func replace(at *atomic.Pointer[serve.AgentResource], name string, message proto.Message) (changed bool, err error) {
	next, err := serve.EncodeAgentResource(name, message)
	if err != nil {
		return false, err
	}
	if was := at.Load(); was != nil && was.Version == next.Version {
		return false, nil
	}
	at.Store(next)
	return true, nil
}

// Follow tells stock agents of the roots of other CAs until ctx ends: current gives them, changed waits until there may
// be others (an error: ctx has ended).
func (t *Trust) Follow(ctx context.Context, current func() []string, changed func(context.Context) error, server Server) error {
	for {
		is, err := t.Others(current())
		if err != nil {
			return err
		}
		if is {
			server.AgentResourceChanged(pcdsURL)
		}
		if changed(ctx) != nil {
			return nil
		}
	}
}

// Run hands every new state of the keyring to those who depend on it, until ctx ends: agents (by push), streams, which
// may belong to somebody who is revoked now, and root-cert.pem in the data directory. An error is a file that cannot be
// written.
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
		var again <-chan time.Time
		switch written, err = t.writeRoots(state, written); {
		case errors.Is(err, syscall.ENOSPC): // a full disk ends nothing: those of before are there
			again = time.After(rootsAgain)
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// rootsAgain is the pause before root-cert.pem is written again where the disk was full.
const rootsAgain = 10 * time.Second

// RootsWritten says whether root-cert.pem has been written, or was found as it is to be, since this process started.
func (t *Trust) RootsWritten() bool { return t.rooted.Load() }

// writeRoots keeps root-cert.pem in the data directory: what agents on this machine verify the control plane against.
// It returns what is in the file now. It is not synced: each start compares it, and whoever waits for it should not
// wait for the disk.
func (t *Trust) writeRoots(state *keyring.State, written string) (string, error) {
	roots := string(issue.EncodeCertificates(state.Bundle...))
	if t.dir == "" || roots == "" || roots == written {
		return written, nil
	}
	path := filepath.Join(t.dir, "root-cert.pem")
	if there, err := os.ReadFile(path); err == nil && string(there) == roots {
		t.rooted.Store(true)
		return roots, nil
	}
	if err := os.WriteFile(path+".new", []byte(roots), 0o644); err != nil {
		_ = os.Remove(path + ".new") // what was written of it takes room
		return written, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return written, err
	}
	t.rooted.Store(true)
	return roots, nil
}
