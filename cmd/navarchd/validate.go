package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// validate reads the environment, sets defaults, and checks the configuration. The error joins all findings. Each
// finding names the invalid flag or variable.
func (c *config) validate() error {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if err := c.env.read(os.LookupEnv); err != nil {
		problems = append(problems, err)
	}
	c.fill()
	c.checkRoles(refuse)
	c.checkNames(refuse)
	c.checkNumbers(refuse)
	c.checkIssuers(refuse)
	c.checkCredentials(refuse)
	return errors.Join(problems...)
}

// checkRoles verifies that the roles exist, and that the flags which they need are set.
func (c *config) checkRoles(refuse func(format string, args ...any)) {
	if c.has(roleCA) && c.kek == "" && !c.env.signers {
		refuse("--kek is needed for role ca with --etcd-endpoints: etcd stores the keys of the CA only sealed")
	}
	for _, r := range c.roles {
		switch {
		case slices.Contains(existing, role(r)):
		default:
			refuse("--roles: unknown role %q (there are: %v)", r, existing)
		}
	}
	if c.has(roleIngest) && c.configDir == "" && !c.kubernetes() {
		refuse("--config-dir is needed for role ingest, or --kubeconfig, or --registries=Kubernetes in a Pod")
	}
	byPeer := c.admitsAlone() && len(c.caPeers) > 0
	if c.has(roleAdmit) && (c.httpsAddr == "" || !c.hasKeyring() && c.tlsCert == "" && !byPeer) {
		refuse("--roles: role admit needs an address (--https-addr) and a certificate: --kek (the mesh's own CA), --tls-cert and" +
			" --tls-key, or, where it is the only role, --ca-peers that sign one")
	}
	if byPeer && !c.hasKeyring() && c.tlsCert == "" && c.peerRoots == "" && !c.kubernetes() {
		refuse("--ca-peers, without --kek: the mesh's roots are needed, by --peer-roots, or from a Kubernetes API server (--kubeconfig or" +
			" --registries=Kubernetes)")
	}
	if c.registries != "" && c.registries != registryKubernetes {
		refuse("--registries: %q; want %s", c.registries, registryKubernetes)
	}
	if c.has(roleCA) && c.clientCA != "" && !c.env.signers {
		refuse("--tls-client-ca cannot be combined with role ca, which verifies clients against its own roots")
	}
}

// checkCredentials verifies that the secure address can authenticate its callers. A process that cannot verify any kind
// of credential would have to serve all callers or none.
func (c *config) checkCredentials(refuse func(format string, args ...any)) {
	if c.clientCA != "" && (c.tlsCert == "" || c.secureGRPCAddr == "") {
		refuse("--tls-client-ca is for the secure address (--secure-grpc-addr), which needs --tls-cert and --tls-key where clients are" +
			" verified against that file")
	}
	if c.tokenReview && !c.kubernetes() {
		refuse("--token-review asks a Kubernetes API server: --kubeconfig or --registries=Kubernetes is needed")
	}
	byFiles := c.has(roleXDS) && c.secureGRPCAddr != "" && c.tlsCert != "" && !c.hasKeyring()
	if byFiles && c.env.xdsAuth && c.clientCA == "" && c.tokenIssuer == "" && !c.kubernetes() && c.dataDir == "" {
		refuse("--secure-grpc-addr with --tls-cert and without --kek: callers need a credential (XDS_AUTH), and this process can verify none: " +
			"give it --tls-client-ca (certificates), --token-issuer (service-account tokens) or --kek (the mesh's own CA), " +
			"or set XDS_AUTH=false to serve everybody, or --secure-grpc-addr= to disable the TLS address")
	}
}

// checkNames verifies the flags for the store, for files and addresses, and for names.
func (c *config) checkNames(refuse func(format string, args ...any)) {
	switch {
	case c.dataDir != "" && len(c.etcd.Endpoints) > 0:
		refuse("--data-dir and --etcd-endpoints exclude each other: either the embedded etcd or one of yours")
	case c.storeless() && !(c.admitsAlone() && c.kek == ""):
		refuse("--data-dir (embedded etcd) or --etcd-endpoints (one of yours) is needed, except with role admit alone and without --kek")
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		refuse("--tls-cert and --tls-key go together")
	}
	var err error
	if c.shared, err = prefixes(c.sharedSources); err != nil {
		refuse("--shared-sources: %w", err)
	}
	if err = c.isolation.read(); err != nil {
		refuse("%w", err)
	}
	if host, _, err := net.SplitHostPort(c.ctrlzAddr); c.ctrlzAddr != "" &&
		(err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback()) {
		refuse("--ctrlz-addr: %q is no loopback address with a port: everyone who can reach the address can change log levels", c.ctrlzAddr)
	}
	if err := c.etcd.Check(); err != nil {
		refuse("%w", err)
	}
	if c.mesh == "" || strings.Contains(c.mesh, "/") {
		refuse("--mesh: %q is not a valid name: it must not be empty or contain a slash", c.mesh)
	}
	if strings.Contains(c.env.revision, "/") {
		refuse("REVISION: %q is no name (no slash)", c.env.revision)
	}
}

// checkNumbers verifies that durations and limits are in range.
func (c *config) checkNumbers(refuse func(format string, args ...any)) {
	if b := c.budget; min(b.Objects, b.Bytes, b.Exported, b.Own) < 0 {
		refuse("--tenant-max-objects, --tenant-max-bytes, --tenant-max-exported, --tenant-max-own: %d, %d, %d, %d; want 0 (no limit) or more",
			b.Objects, b.Bytes, b.Exported, b.Own)
	}
	if c.renewAlone < 0 || c.renewMachines < 0 {
		refuse("--renewals-without-token, --machine-renewals: %v, %v; must not be negative", c.renewAlone, c.renewMachines)
	}
	if c.etcdQuota <= 0 {
		refuse("--etcd-quota-bytes: %d; must be positive", c.etcdQuota)
	}
	if c.lease < time.Second {
		refuse("--leader-lease: %v is too short (etcd's leases have seconds)", c.lease)
	}
	if c.replicaLease < time.Second || c.replicaLease%time.Second != 0 {
		refuse("--replica-lease: %v; want whole seconds", c.replicaLease)
	}
	if c.ramp < 0 {
		refuse("--replica-ramp: %v; must not be negative", c.ramp)
	}
	if c.drainAfter < time.Second {
		refuse("--drain-after: %v; want at least one second", c.drainAfter)
	}
	if c.snapshotAge <= 0 {
		refuse("--snapshot-max-age: %v; want a duration above 0", c.snapshotAge)
	}
	if c.rightsAway <= 0 {
		refuse("--secret-rights-max-age: %v; want a duration above 0", c.rightsAway)
	}
	if c.shutdown <= 0 {
		refuse("--shutdown-duration: %v; want a duration above 0", c.shutdown)
	}
}

// prefixes parses addresses and ranges of addresses. An address becomes the range with only this address.
func prefixes(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		one, err := netip.ParsePrefix(text)
		if err != nil {
			ip, notOne := netip.ParseAddr(text)
			if notOne != nil {
				return nil, fmt.Errorf("%q is no address and no range of addresses (such as 10.1.0.0/16)", text)
			}
			one = netip.PrefixFrom(ip, ip.BitLen())
		}
		all = append(all, one)
	}
	return all, nil
}
