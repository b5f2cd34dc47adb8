package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// validate completes the configuration. Every message names the flag or variable that is wrong.
func (c *config) validate() error {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	c.fill()
	c.checkRoles(refuse)
	c.checkNames(refuse)
	c.checkNumbers(refuse)
	if err := c.env.read(os.LookupEnv); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// checkRoles: the roles exist, and each has what it needs.
func (c *config) checkRoles(refuse func(format string, args ...any)) {
	if c.has(roleCA) && c.kek == "" {
		refuse("--kek is needed for role ca with --etcd-endpoints: its keys are never stored unsealed")
	}
	for _, r := range c.roles {
		switch {
		case slices.Contains(existing, role(r)):
		case slices.Contains(planned, role(r)):
			refuse("--roles: %q does not exist in this version (there are: %v)", r, existing)
		default:
			refuse("--roles: unknown role %q (there are: %v)", r, existing)
		}
	}
	if c.has(roleIngest) && c.configDir == "" {
		refuse("--config-dir is needed for role ingest")
	}
	if c.has(roleCA) && c.clientCA != "" {
		refuse("--tls-client-ca goes without role ca, which verifies clients against its own roots")
	}
}

// checkNames: the store, files and names are given as they go together.
func (c *config) checkNames(refuse func(format string, args ...any)) {
	switch {
	case c.dataDir != "" && len(c.etcdEndpoints) > 0:
		refuse("--data-dir and --etcd-endpoints exclude each other: either the embedded etcd or one of yours")
	case c.dataDir == "" && len(c.etcdEndpoints) == 0:
		refuse("--data-dir (embedded etcd) or --etcd-endpoints (one of yours) is needed")
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		refuse("--tls-cert and --tls-key go together")
	}
	if (c.etcdCert == "") != (c.etcdKey == "") {
		refuse("--etcd-cert and --etcd-key go together")
	}
	if (c.etcdUser == "") != (c.etcdPassword == "") {
		refuse("--etcd-user and --etcd-password-file go together")
	}
	if c.mesh == "" || strings.Contains(c.mesh, "/") {
		refuse("--mesh: %q is no name (not empty, no slash)", c.mesh)
	}
}

// checkNumbers: durations and limits are in range.
func (c *config) checkNumbers(refuse func(format string, args ...any)) {
	if c.budget.Objects < 0 || c.budget.Bytes < 0 {
		refuse("--tenant-max-objects, --tenant-max-bytes: %d, %d; want 0 (no limit) or more", c.budget.Objects, c.budget.Bytes)
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
		refuse("--drain-after: %v; want a second at least", c.drainAfter)
	}
	if c.snapshotAge <= 0 {
		refuse("--snapshot-max-age: %v; want a duration above 0", c.snapshotAge)
	}
	if c.shutdown <= 0 {
		refuse("--shutdown-duration: %v; want a duration above 0", c.shutdown)
	}
}
