package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/istioca"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/clock"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// authority contains the keyring, the authentication of callers and, in a process with role ca, the service that signs.
// A process without role ca has an authority if --kek is given. The keyring of this authority gives roots and
// revocation lists to agents, and a certificate to the secure address.
type authority struct {
	config  *config
	log     *slog.Logger
	store   *kv.Store
	ring    *keyring.Keyring
	server  *caserve.Server
	callers *callers.Callers
	serving *serving.TLS
	clock   *clock.Clock
	denied  *identities.Denied // identities that the configuration denies
	rooted  func() bool        // reports whether root-cert.pem was written
}

// now returns the time for signing and for verifying tokens.
func now() time.Time { return time.Now() }

// allowedRenewals is the number of certificates that one replica may renew while etcd is away. 10,000 proxies that
// renew every two hours need 5,000 renewals in an hour.
const allowedRenewals = 10_000

// renewals returns the number of certificates that this process may issue while etcd is away. An embedded etcd is never
// away.
func (c *config) renewals() int {
	if c.dataDir != "" || !c.has(roleCA) {
		return 0
	}
	return allowedRenewals
}

// newAuthority makes the keyring, the callers' authentication and the signing service. The function rooted reports
// whether root-cert.pem was written. The function snapshot returns the known configuration. newAuthority fails if a
// flag is invalid, or if a part cannot be made.
//
// The leader, which writes the configuration, may lack role ca. Therefore every process with role ca may end rotations
// and prune the journal. If two processes do so at once, the transaction of one of them fails.
func newAuthority(c *config, store *kv.Store, sealer seal.Sealer, snapshot func() *mirror.Snapshot,
	denied *identities.Denied, cluster clusterFacts, rooted func() bool, log *slog.Logger) (*authority, error) {
	domain, err := spiffeid.TrustDomainFromString(c.trustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain: %w", err)
	}
	a := &authority{config: c, log: log, store: store, denied: denied, rooted: rooted,
		clock: clock.New(clock.Config{Store: store, Name: c.processName(), Period: c.env.maxCertTTL, Wall: now, Log: log})}
	if a.serving, err = serving.New(c.servingNames(), c.tlsCert, c.tlsKey); err != nil {
		return nil, err
	}
	a.ring, err = keyring.New(keyring.Config{
		Store: store, Sealer: sealer, Mesh: c.mesh, TrustDomain: domain,
		Dir: c.stateDir, CACerts: c.ownCA(cluster), Logger: log, Peers: c.askPeers(), Now: now, Clock: a.compares(),
		Leads: func() bool { return c.has(roleCA) }, Roots: c.believed(), Allowance: c.renewals(),
	})
	if err != nil {
		return nil, err
	}
	if a.callers, err = callers.New(c.callersConfig(snapshot, cluster, a.revoked, log)); err != nil {
		return nil, err
	}
	processes, err := c.controlPlane(domain)
	if err != nil {
		return nil, err
	}
	a.serving.Identify(processes[0])
	a.server, err = caserve.New(caserve.Config{
		ControlPlane: processes, Cluster: c.cluster, Names: c.servingNames(),
		Now: now, Authorities: current{a.ring}, Authenticator: a.callers.OfCalls(),
		Journal: journal{a.ring}, Fallback: renewals{a.ring}, Revocations: revocations{a.ring},
		Holders: holders{a.ring}, Memory: a.ring, Aliases: identities.Aliases(snapshot),
		Policy: issue.Policy{DefaultTTL: c.env.certTTL, MaxTTL: c.env.maxCertTTL},
		Renewals: caserve.Renewals{Alone: c.renewAlone, Machines: c.renewMachines,
			Machine: identities.Machines(snapshot), Tokens: a.callers.Tokens(), Ending: obs.MachinesEnding.Inc},
		Hooks: certificateHooks(), Audit: log,
	})
	return a, err
}

// callersConfig returns the configuration for the authentication of callers. The argument cluster has the facts about
// the cluster's tokens. The function revoked reports whether this process knows that a caller is revoked.
func (c *config) callersConfig(snapshot func() *mirror.Snapshot,
	cluster clusterFacts, revoked func(attest.Caller) bool, log *slog.Logger) callers.Config {
	return callers.Config{TrustDomain: c.trustDomain, Audiences: c.env.audiences, TokenIssuer: c.tokenIssuer, TokenKeys: c.tokenKeys,
		Cluster: c.cluster, Found: cluster.keys, Remote: cluster.remote, Gone: cluster.gone, Reviewer: cluster.reviewer, DataDir: c.dataDir,
		Required: c.env.xdsAuth, Foreign: c.env.foreign(), MaxMessage: c.env.maxRecvSize,
		Now: now, Log: log, Aliases: identities.Aliases(snapshot), Workloads: identities.Workloads(snapshot), Revoked: revoked}
}

// peerIssued returns the task that obtains the serving certificate from peers while this process cannot sign.
func (a *authority) peerIssued() *serving.PeerIssued {
	self, _ := a.config.advertised()
	return serving.NewPeerIssued(serving.PeerConfig{TLS: a.serving,
		Ring: a.ring, Held: a.ring.Held, Store: a.store, Peers: a.config.caPeers, Self: self,
		ServerName: a.config.peerName(), TokenFile: a.config.tokenFile, Log: a.log})
}

// peerName returns a DNS name in the serving certificate of each process of this control plane.
func (c *config) peerName() string { return "istiod." + c.env.podNamespace + ".svc" }

// controlPlane returns the identities of this control plane's processes. The identity of this process comes first. If a
// name is invalid, the error lists the variables and the flag from which it may come.
func (c *config) controlPlane(domain spiffeid.TrustDomain) (all []spiffeid.ID, err error) {
	for _, account := range append([]string{c.env.account}, c.accounts...) {
		id, err := spiffeid.FromSegments(domain, "ns", c.env.podNamespace, "sa", account)
		if err != nil {
			return nil, fmt.Errorf("environment POD_NAMESPACE, SERVICE_ACCOUNT, --control-plane-accounts: %q: %w", account, err)
		}
		all = append(all, id)
	}
	return all, nil
}

// believed returns a function that reads the file of --peer-roots. It returns nil if the flag is not set. Each call of
// the function reads the file again, because the operator may have added a root.
func (c *config) believed() func() ([]*x509.Certificate, error) {
	if c.peerRoots == "" {
		return nil
	}
	return func() ([]*x509.Certificate, error) {
		text, err := os.ReadFile(c.peerRoots)
		if err != nil {
			return nil, fmt.Errorf("--peer-roots: %w", err)
		}
		roots, err := issue.Certificates(text)
		if err != nil {
			return nil, fmt.Errorf("--peer-roots: %s: %w", c.peerRoots, err)
		}
		return roots, nil
	}
}

// servingNames returns the DNS names and IP addresses in this process's serving certificate.
func (c *config) servingNames() []string {
	names := issue.ServingNames(c.env.podNamespace, c.env.revision, c.env.customHost)
	return append(names, "localhost", "127.0.0.1", "::1")
}

// compares returns the clock that compares this machine's time with other clocks. It returns nil in a process that
// signs nothing.
func (a *authority) compares() keyring.Clock {
	if !a.config.has(roleCA) {
		return nil
	}
	return a.clock
}

// askPeers returns a function that requests the keyring that the other replicas with role ca remember. It returns nil
// if no replicas are named (--ca-peers).
func (c *config) askPeers() func(context.Context, []byte) ([][]byte, error) {
	if len(c.caPeers) == 0 {
		return nil
	}
	return func(ctx context.Context, nonce []byte) ([][]byte, error) {
		return caserve.AskPeers(ctx, c.caPeers, nonce)
	}
}

// part returns the tasks and services of the authority: the keyring and, in a process with role ca, the services that
// sign. In a process with role ca, a further task compares this machine's clock with the API server's clock, unless api
// is nil. The argument secrets follows the Secrets with the mesh's CA, and may be nil.
func (a *authority) part(api *apiserver.Client, secrets *istioca.Secrets) part {
	added := part{
		tasks:  []loop.Task{{Name: "keyring", Run: a.ring.Run}},
		ready:  []func() error{a.ready},
		notes:  []func() []string{a.sealed},
		gauges: []func(time.Time){a.gauges},
	}
	if secrets != nil {
		added.tasks = append(added.tasks, loop.Task{Name: "Secrets of the CA", Run: secrets.Run})
	}
	if a.config.has(roleCA) {
		added.tasks = append(added.tasks, loop.Task{Name: "clock", Run: a.clock.Run})
		if api != nil {
			added.tasks = append(added.tasks, loop.Task{Name: "API server's clock",
				Run: func(ctx context.Context) error { return a.clock.Follow(ctx, api.Date) }})
		}
		added.plain = append(added.plain, func(r grpc.ServiceRegistrar) { caserve.RegisterPlain(r, current{a.ring}) })
		added.secure = append(added.secure, a.server.Register)
	}
	if !a.serving.OwnFiles() && (a.config.secureGRPCAddr != "" && a.config.speaksGRPC() || a.config.has(roleAdmit)) {
		added.tasks = append(added.tasks, loop.Task{Name: "serving certificate", Run: a.peerIssued().Run})
	}
	return added
}

// revoked reports whether a caller's identity, or the certificate that it showed, is revoked.
func (a *authority) revoked(who attest.Caller) bool {
	return a.revokedIdentity(who.ID) || who.Serial != "" && a.ring.State().RevokedSerial(who.Serial)
}

// revokedIdentity reports whether an identity is revoked. A process that cannot unseal the keyring also refuses the
// identities that the configuration denies.
func (a *authority) revokedIdentity(id spiffeid.ID) bool {
	state := a.ring.State()
	return state.RevokedIdentity(id) || state.Sealed != nil && a.denied.Has(id)
}
