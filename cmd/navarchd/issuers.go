package main

import (
	"errors"
	"fmt"
	"strings"
)

// The environment variables of istiod select the issuer of certificates: navarchd's CA (role ca), another CA beside
// navarchd, or signers of Kubernetes. With signers of Kubernetes, role ca is the registration authority: it
// authenticates callers and forwards their requests.

// kubernetesSigners is the only supported value of EXTERNAL_CA.
const kubernetesSigners = "ISTIOD_RA_KUBERNETES_API"

// readIssuers parses the variables that select the issuer. The argument parse calls set with the value of the named
// variable, if there is one.
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
	parse("EXTERNAL_CA", func(v string) error {
		if e.signers = v == kubernetesSigners; !e.signers {
			return fmt.Errorf("want %s (signers of Kubernetes), or leave it out and have another CA sign for agents (ENABLE_CA_SERVER=false)",
				kubernetesSigners)
		}
		return nil
	})
	parse("K8S_SIGNER", func(v string) error {
		if domain, name, is := strings.Cut(v, "/"); !is || domain == "" || name == "" {
			return errors.New("want the name of a signer, DOMAIN/NAME")
		}
		e.signer = v
		return nil
	})
	parse("CERT_SIGNER_DOMAIN", func(v string) error {
		if strings.Contains(v, "/") {
			return errors.New("want a domain, without a slash")
		}
		e.signerDomain = v
		return nil
	})
}

// foreign reports whether another CA or signers of Kubernetes sign the certificates.
func (e *environment) foreign() bool { return e.otherCA || e.signers }

// checkIssuers refuses settings that contradict the selected issuer. With such settings, this process would sign beside
// another CA, or its TLS address would lack a certificate of the selected issuer.
func (c *config) checkIssuers(refuse func(format string, args ...any)) {
	const other = "ENABLE_CA_SERVER=false says that another CA signs"
	if c.env.otherCA && c.has(roleCA) {
		refuse("--roles: role ca, and %s", other)
	}
	if c.env.otherCA && c.caCerts != "" {
		refuse("--cacerts, and %s", other)
	}
	if c.env.otherCA && c.has(roleXDS) && c.secureGRPCAddr != "" && c.tlsCert == "" {
		refuse("--secure-grpc-addr, and %s: give it --tls-cert and --tls-key, and --tls-client-ca with the roots of that CA, or"+
			" --secure-grpc-addr= to disable the TLS address", other)
	}
	if p := c.env.certProvider; p != "" && p != "istiod" && c.tlsCert == "" {
		refuse("environment PILOT_CERT_PROVIDER=%q: the certificate of the secure address is one of the mesh's own CA (istiod), or that of"+
			" --tls-cert and --tls-key", p)
	}
	c.checkSigners(refuse)
}

// checkSigners refuses settings that prevent the use of Kubernetes signers. If no such signers are selected, it refuses
// settings that are only for them.
func (c *config) checkSigners(refuse func(format string, args ...any)) {
	e := &c.env
	if !e.signers {
		for name, v := range map[string]string{"K8S_SIGNER": e.signer, "CERT_SIGNER_DOMAIN": e.signerDomain} {
			if v != "" {
				refuse("environment %s=%q: it is for EXTERNAL_CA=%s", name, v, kubernetesSigners)
			}
		}
		return
	}
	const external = "EXTERNAL_CA=" + kubernetesSigners
	for wrong, is := range map[string]bool{
		"K8S_SIGNER, or CERT_SIGNER_DOMAIN, says which signer":                                     e.signer == "" && e.signerDomain == "",
		"ENABLE_CA_SERVER=false contradicts it":                                                    e.otherCA,
		"--cacerts contradicts it":                                                                 c.caCerts != "",
		"it needs a Kubernetes API server (--kubeconfig, or --registries=Kubernetes)":              !c.kubernetes(),
		"--roles: role ca goes with role xds, which knows the mesh configuration (caCertificates)": c.has(roleCA) && !c.has(roleXDS),
		"--secure-grpc-addr needs --tls-cert and --tls-key of that CA, and --tls-client-ca with its roots to verify clients'" +
			" certificates": c.speaksGRPC() && c.secureGRPCAddr != "" && c.tlsCert == "",
	} {
		if is {
			refuse("environment %s: %s", external, wrong)
		}
	}
}
