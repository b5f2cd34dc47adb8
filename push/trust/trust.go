// Package trust distributes the roots and revocation lists of the keyring (the CA of the mesh). Agents of Navarch
// receive both as a resource. Istio's agents receive the keyring's roots and the roots of other CAs that the mesh
// configuration names. Agents on this machine can also read the keyring's roots from a file.
//
// Owns: the encoded resources, and root-cert.pem in the data directory. Reads: states of ca/keyring. Never: sends the
// roots of a keyring that is sealed, which means that it cannot sign now (keyring.State.Sealed).
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
	"navarch.io/navarch/store/durable"
)

// pcdsURL is the type URL with which Istio's agents request the mesh's roots. navarch-agent requests agentapi.TrustURL.
const pcdsURL = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"

// Keyring is the part of the keyring that Run follows.
type Keyring interface {
	// State returns the newest state, which is read-only and not nil.
	State() *keyring.State
	// Changed returns a channel that is closed when State returns a newer state than at the time of the call.
	Changed() <-chan struct{}
}

// Server is the part of the xDS server that pushes changes.
type Server interface {
	// AgentResourceChanged reports that the resource of a type may have changed, to all streams that subscribe to the
	// type.
	AgentResourceChanged(typeURL string)
	// Recheck ends the streams whose callers are refused at present, and returns their number.
	Recheck() (ended int)
}

// Trust holds two resources. The resource for Navarch's agents has the roots and revocation lists of the keyring. The
// resource for Istio's agents has the roots of the keyring and of other CAs. Until Run has read an unsealed state of
// the keyring with roots, only the roots of other CAs are sent. Trust is safe for concurrent use.
type Trust struct {
	dir               string
	validation, roots atomic.Pointer[serve.AgentResource]
	rooted            atomic.Bool // root-cert.pem was written

	mu     sync.Mutex // guards the fields below, and changes of the field roots
	own    []string   // roots of the keyring, PEM
	others []string   // roots of other CAs, PEM
}

// New returns a Trust that writes root-cert.pem into the directory dir. If dir is empty, no file is written.
func New(dir string) *Trust { return &Trust{dir: dir} }

// AgentTypes returns the agent types of the resources, for serve.Config: agentapi.TrustURL for Navarch's agents and
// istio.mesh.v1alpha1.ProxyConfig for Istio's. All clients get the same resource of a type.
func (t *Trust) AgentTypes() []serve.AgentType {
	resource := func(p *atomic.Pointer[serve.AgentResource]) func(serve.Client, serve.Proxy) *serve.AgentResource {
		return func(serve.Client, serve.Proxy) *serve.AgentResource { return p.Load() }
	}
	return []serve.AgentType{
		{TypeURL: agentapi.TrustURL, Resource: resource(&t.validation)}, {TypeURL: pcdsURL, Resource: resource(&t.roots)}}
}

// encode encodes the resources of a state, and returns the type URLs whose resources have changed. A sealed state
// changes nothing, because it may have roots without revocation lists. Without the lists, agents would accept revoked
// certificates again. A state without roots changes nothing either.
func (t *Trust) encode(s *keyring.State) (changed []string, err error) {
	if s.Sealed != nil || len(s.Bundle) == 0 {
		return nil, nil
	}
	bundle := agentapi.Trust{Roots: issue.EncodeCertificates(s.Bundle...)}
	for _, list := range s.CRLs {
		bundle.Lists = append(bundle.Lists, issue.EncodeCRL(list.DER)...)
	}
	replaced, err := replace(&t.validation, agentapi.TrustName, bundle.Encode())
	if err != nil {
		return nil, err
	}
	if replaced {
		changed = append(changed, agentapi.TrustURL)
	}
	var own []string
	for _, root := range s.Bundle {
		own = append(own, string(issue.EncodeCertificates(root)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = own
	if replaced, err = t.replaceRoots(); replaced {
		changed = append(changed, pcdsURL)
	}
	return changed, err
}

// Others sets the roots of other CAs. Istio's agents receive them together with the keyring's roots. Each element is
// PEM with one or more certificates. Others keeps the slice, which must not change afterwards. It reports whether the
// resource of Istio's agents has changed, but does not push the resource. If no roots of the keyring are known and the
// argument is empty, the resource stays as it was. Others fails if the resource cannot be encoded.
func (t *Trust) Others(roots []string) (changed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = roots
	return t.replaceRoots()
}

// replaceRoots encodes the resource of Istio's agents, and reports whether it has changed. The caller holds the lock.
func (t *Trust) replaceRoots() (changed bool, err error) {
	pcds := &meshv1alpha1.ProxyConfig{CaCertificatesPem: slices.Concat(t.own, t.others)}
	if len(pcds.CaCertificatesPem) == 0 {
		return false, nil
	}
	return replace(&t.roots, "", pcds)
}

// replace encodes and stores a resource, and reports whether the resource differs from the previous one.
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

// Follow pushes the roots of other CAs to Istio's agents until ctx ends. The function current returns the roots as
// Others expects them. The function changed waits until the roots may have changed, and must fail when ctx ends. After
// any error of the function changed, Follow returns nil. Follow fails if the resource cannot be encoded. The server
// must not be nil.
func (t *Trust) Follow(ctx context.Context, current func() []string, changed func(context.Context) error, server Server) error {
	for {
		replaced, err := t.Others(current())
		if err != nil {
			return err
		}
		if replaced {
			server.AgentResourceChanged(pcdsURL)
		}
		if changed(ctx) != nil {
			return nil
		}
	}
}

// Run follows the keyring until ctx ends, and then returns nil. For each new state it pushes changed resources to
// agents, calls server.Recheck, and writes root-cert.pem if its content changes. If server is nil, nothing is pushed. A
// state that is sealed or has no roots changes no resource. However, root-cert.pem also gets the roots of a sealed
// state. Run fails if a resource cannot be encoded, or if the file cannot be written. If the disk is full, Run does not
// fail, and tries again every ten seconds.
func (t *Trust) Run(ctx context.Context, ring Keyring, server Server) error {
	written := ""
	for {
		changed := ring.Changed()
		state := ring.State()
		urls, err := t.encode(state)
		if err != nil {
			return err
		}
		if server != nil {
			for _, url := range urls {
				server.AgentResourceChanged(url)
			}
			server.Recheck() // the state may revoke further identities and certificates
		}
		var again <-chan time.Time
		switch written, err = t.writeRoots(state, written); {
		case errors.Is(err, syscall.ENOSPC): // not fatal, because the file still has the previous roots
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

// rootsAgain is the pause after which root-cert.pem is written again if the disk was full.
const rootsAgain = 10 * time.Second

// RootsWritten reports whether root-cert.pem was written, or found to be current, since the call of New. Without a
// directory it returns false.
func (t *Trust) RootsWritten() bool { return t.rooted.Load() }

// writeRoots writes root-cert.pem, with which agents on this machine verify the control plane. The parameter written is
// the content of the file, or empty if the content is not known yet. The result is the content after the call. The file
// is not synced, because a sync would delay agents that wait for the file. The first call in a process therefore
// compares the content with the roots.
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
	if err := durable.ReplaceUnsynced(path, 0o644, []byte(roots)); err != nil {
		return written, err
	}
	t.rooted.Store(true)
	return roots, nil
}
