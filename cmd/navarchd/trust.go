package main

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

// trust is what agents are pushed of the keyring: roots and revocation lists. Without role ca it stays empty, and agents
// keep what they have.
type trust struct {
	validation, roots atomic.Pointer[serve.AgentResource]
}

func (t *trust) agentTypes() []serve.AgentType {
	give := func(p *atomic.Pointer[serve.AgentResource]) func(serve.Client, serve.View) *serve.AgentResource {
		return func(serve.Client, serve.View) *serve.AgentResource { return p.Load() }
	}
	return []serve.AgentType{{TypeURL: agentapi.TrustURL, Resource: give(&t.validation)}, {TypeURL: pcdsURL, Resource: give(&t.roots)}}
}

// take encodes a state, once for all clients, and says which types have another resource now. A sealed state changes
// nothing: what it knows of the roots has no lists with it, and without lists what was revoked would be trusted again.
func (t *trust) take(s *keyring.State) (changed []string, err error) {
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

// followKeyring hands every new state of the keyring to who depends on it: agents (by push), and root-cert.pem in the data
// directory.
func (p *process) followKeyring(ctx context.Context) error {
	written := ""
	for {
		changed := p.ca.ring.Changed()
		state := p.ca.ring.State()
		urls, err := p.trust.take(state)
		if err != nil {
			return err
		}
		if p.server != nil {
			for _, url := range urls {
				p.server.AgentResourceChanged(url)
			}
			p.server.Recheck() // identities and certificates may be revoked that were not
		}
		if written, err = p.writeRoots(state, written); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// writeRoots keeps root-cert.pem in the data directory: what agents on this machine verify the control plane against. It
// returns what is in the file now. It is not synced: each start writes it again, and who waits for it should not wait for the disk.
func (p *process) writeRoots(state *keyring.State, written string) (string, error) {
	roots := string(issue.EncodeCertificates(state.Bundle...))
	if p.config.dataDir == "" || roots == "" || roots == written {
		return written, nil
	}
	path := filepath.Join(p.config.dataDir, "root-cert.pem")
	if err := os.WriteFile(path+".new", []byte(roots), 0o644); err != nil {
		return written, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return written, err
	}
	p.rooted.Store(true)
	return roots, nil
}
