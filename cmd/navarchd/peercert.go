package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/status"
)

// bindPeers adds the flags by which the control plane's processes find and trust each other.
func (c *config) bindPeers(f *pflag.FlagSet) {
	f.StringSliceVar(&c.caPeers, "ca-peers", nil, "Secure gRPC addresses of the replicas with role ca, host:port; the name of a"+
		" headless Service is enough. A keyring older than the newest one that a peer remembers is refused. A process with role admit alone and"+
		" without --kek has one of them sign its serving certificate.")
	f.StringSliceVar(&c.accounts, "control-plane-accounts", nil,
		"Service accounts of this namespace, beside SERVICE_ACCOUNT, whose processes role ca gives a serving certificate for their token.")
	f.StringVar(&c.tokenFile, "token-file", "/var/run/secrets/tokens/istio-token",
		"Service-account token of the control plane itself: a replica that cannot unseal shows it to a peer that can, which signs its"+
			" serving certificate.")
	f.StringVar(&c.peerRoots, "peer-roots", "", "File of the mesh's root certificates. A replica that has not unsealed the keyring"+
		" since its start trusts only these (default: those that it remembers in --state-dir, else those in etcd; with role admit"+
		" alone and without --kek, those in the ConfigMap istio-ca-root-cert of the system namespace).")
}

// admitsAlone reports whether the process has role admit only.
func (c *config) admitsAlone() bool { return len(c.roles) == 1 && c.has(roleAdmit) }

// storeless reports whether the flags name no etcd, neither embedded nor external.
func (c *config) storeless() bool { return c.dataDir == "" && len(c.etcd.Endpoints) == 0 }

// addRoots gives a process with role admit alone a serving certificate that a peer with role ca signs. It does nothing
// for processes with a keyring or an operator's certificate. The process trusts the roots of --peer-roots. Without this
// flag, it trusts the roots in the ConfigMap istio-ca-root-cert of its namespace. This is safe, since a writer of this
// ConfigMap can also change webhook configurations.
func (a *assembly) addRoots() (err error) {
	c := a.config
	if !c.admitsAlone() || c.hasKeyring() || c.tlsCert != "" {
		return nil
	}
	log, roots := a.scoped(obs.ScopeCA), serving.NewRoots()
	if a.serving, err = serving.New(c.servingNames(), "", ""); err != nil {
		return err
	}
	a.roots = roots
	follow, err := a.followRoots(roots, log)
	if err != nil {
		return err
	}
	asks := serving.NewPeerIssued(serving.PeerConfig{TLS: a.serving,
		Ring: roots, Peers: c.caPeers, ServerName: c.peerName(), TokenFile: c.tokenFile, Log: log})
	a.add(part{tasks: []loop.Task{{Name: "the mesh's roots", Run: follow}, {Name: "serving certificate", Run: asks.Run}}})
	return nil
}

// rootsAgain is the interval at which the file of --peer-roots is read.
const rootsAgain = 10 * time.Second

// followRoots returns a task that updates roots until its context ends.
func (a *assembly) followRoots(roots *serving.Roots, log *slog.Logger) (func(context.Context) error, error) {
	if believed := a.config.believed(); believed != nil {
		return func(ctx context.Context) error { return rereadRoots(ctx, roots, believed, log) }, nil
	}
	maps, err := status.NewConfigMaps(a.config.kubeconfig, a.config.env.podNamespace, status.RootCertName)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	seen := rootMap{roots, status.Key{Namespace: a.config.env.podNamespace, Name: status.RootCertName}, log}
	return func(ctx context.Context) error {
		return maps.Follow(ctx, seen, warnUnread(log, "the mesh's roots cannot be read from the API server"))
	}, nil
}

// rereadRoots calls the function load, which reads the file of --peer-roots, at the interval rootsAgain until ctx ends.
// The parameter target receives the roots. While the file cannot be read, the previous roots stay in use.
func rereadRoots(ctx context.Context, target *serving.Roots, load func() ([]*x509.Certificate, error), log *slog.Logger) error {
	said := ""
	for {
		switch roots, err := load(); {
		case err == nil:
			target.Use(roots)
			said = ""
		case err.Error() != said:
			said = err.Error()
			log.Warn("the mesh's roots cannot be read", obs.KeyError, err)
		}
		if err := loop.Pause(ctx, rootsAgain); err != nil {
			return nil
		}
	}
}

// rootMap receives the ConfigMap istio-ca-root-cert, and passes its certificates to roots.
type rootMap struct {
	roots *serving.Roots
	key   status.Key
	log   *slog.Logger
}

var _ status.Seen[corev1.ConfigMap] = rootMap{}

// Replace implements status.Seen. If the ConfigMap is missing, the previous roots stay in use.
func (m rootMap) Replace(all map[status.Key]status.Found[corev1.ConfigMap]) {
	m.use(all[m.key].Object)
}

// Observe implements status.Seen. It ignores other ConfigMaps.
func (m rootMap) Observe(k status.Key, f status.Found[corev1.ConfigMap]) {
	if k == m.key {
		m.use(f.Object)
	}
}

// use adopts the roots in a ConfigMap. The previous roots stay in use if the argument is nil (the ConfigMap does not
// exist), or if the roots in it are missing or invalid.
func (m rootMap) use(there *corev1.ConfigMap) {
	if there == nil {
		return
	}
	roots, err := issue.Certificates([]byte(status.RootsOf(there)))
	if err != nil {
		m.log.Warn("the mesh's roots cannot be read; the previous roots, if any, stay in use",
			obs.KeyObject, "ConfigMap "+m.key.Namespace+"/"+m.key.Name, obs.KeyError, err)
		return
	}
	m.roots.Use(roots)
}
