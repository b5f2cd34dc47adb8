package main

import "errors"

// Who signs certificates, by the variables that istiod has for it: our CA (role ca), or another one beside navarchd.

// readIssuers takes them; parse reads one where it is set.
func (e *environment) readIssuers(parse func(name string, set func(string) error)) {
	parse("ENABLE_CA_SERVER", func(v string) error {
		var on bool
		if err := boolean(&on)(v); err != nil {
			return err
		}
		e.otherCA = !on
		return nil
	})
	parse("PILOT_CERT_PROVIDER", text(&e.certProvider))
	for _, name := range []string{"EXTERNAL_CA", "K8S_SIGNER", "CERT_SIGNER_DOMAIN"} {
		parse(name, func(string) error {
			return errors.New("certificates of a signer of Kubernetes (ISTIOD_RA_KUBERNETES_API) are not in this version: " +
				"leave it out, or have another CA sign for agents (ENABLE_CA_SERVER=false)")
		})
	}
}

// checkIssuers: where another CA signs, nothing here does, and the secure address has its certificate from there.
func (c *config) checkIssuers(refuse func(format string, args ...any)) {
	const other = "ENABLE_CA_SERVER=false says that another CA signs"
	if c.env.otherCA && c.has(roleCA) {
		refuse("--roles: role ca, and %s", other)
	}
	if c.env.otherCA && c.caCerts != "" {
		refuse("--cacerts, and %s", other)
	}
	if c.env.otherCA && c.has(roleXDS) && c.secureGRPCAddr != "" && c.tlsCert == "" {
		refuse("--secure-grpc-addr, and %s: give it --tls-cert and --tls-key, and --tls-client-ca with the roots of that CA, or --secure-grpc-addr= to serve nobody over TLS", other)
	}
	if p := c.env.certProvider; p != "" && p != "istiod" && c.tlsCert == "" {
		refuse("environment PILOT_CERT_PROVIDER=%q: the certificate of the secure address is one of the mesh's own CA (istiod), or that of --tls-cert and --tls-key", p)
	}
}
