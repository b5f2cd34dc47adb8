package secret

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/credential"
	"navarch.io/navarch/store/problem"
)

// certificateOf returns a self-made certificate of a key, and the key, in PEM.
func certificateOf(t *testing.T, key crypto.Signer, from, to time.Duration, extensions ...pkix.Extension) (cert, private string) {
	t.Helper()
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "a"}, DNSNames: []string{"a.test"},
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to), ExtraExtensions: extensions, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), issuer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", raw)
}

// refusal returns what Envoy says of a listener with these values of a Secret; empty: it accepts them.
func refusal(t *testing.T, data map[string]string) string {
	t.Helper()
	type object = map[string]any
	in := func(text string) object { return object{"inline_string": text} }
	common := object{}
	if data["tls.crt"] != "" {
		common["tls_certificates"] = []any{object{"certificate_chain": in(data["tls.crt"]), "private_key": in(data["tls.key"])}}
	}
	if data["second.crt"] != "" {
		second := object{"certificate_chain": in(data["second.crt"]), "private_key": in(data["second.key"])}
		common["tls_certificates"] = append(common["tls_certificates"].([]any), second)
	}
	if data["ca.crt"] != "" {
		common["validation_context"] = object{"trusted_ca": in(data["ca.crt"])}
	}
	const context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
	socket := object{"name": "envoy.transport_sockets.tls", "typed_config": object{"@type": context, "common_tls_context": common}}
	address := object{"socket_address": object{"address": "127.0.0.1", "port_value": 0}}
	listener := object{"name": "l", "address": address, "filter_chains": []any{object{"filters": []any{}, "transport_socket": socket}}}
	bootstrap := envoytest.Bootstrap{"static_resources": object{"listeners": []any{listener}}}
	return envoytest.Validate(envoytest.Binary(t), envoytest.File(t, bootstrap))
}

// Envoy accepts all content that the check accepts, and refuses what the check says that Envoy refuses.
// Promise: security-gateways.md#keys-secrets-and-configmaps
func TestEnvoyTakesCheckedContent(t *testing.T) {
	const hour = time.Hour
	values := func(key crypto.Signer, from, to time.Duration, extensions ...pkix.Extension) map[string]string {
		cert, private := certificateOf(t, key, from, to, extensions...)
		return map[string]string{"tls.crt": cert, "tls.key": private}
	}
	curve := func(c elliptic.Curve) crypto.Signer {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	long := func(bits int) crypto.Signer {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := values(curve(elliptic.P256()), -hour, hour)
	other := values(curve(elliptic.P256()), -hour, hour)
	with := func(key, value string) map[string]string {
		return map[string]string{"tls.crt": good["tls.crt"], "tls.key": good["tls.key"], key: value}
	}
	// The ingester decides about expired certificates, since it knows the time.
	for name, c := range map[string]struct {
		data           map[string]string
		checked, taken bool // the check accepts it; Envoy does
	}{
		"P-256":               {good, true, true},
		"P-384":               {values(curve(elliptic.P384()), -hour, hour), true, true},
		"P-521":               {values(curve(elliptic.P521()), -hour, hour), true, true},
		"Ed25519":             {values(ed, -hour, hour), true, true},
		"RSA 2048":            {values(long(2048), -hour, hour), true, true},
		"expired":             {values(curve(elliptic.P256()), -2*hour, -hour), true, true},
		"of tomorrow":         {values(curve(elliptic.P256()), 24*hour, 25*hour), true, true},
		"the longest chain":   {with("tls.crt", good["tls.crt"]+strings.Repeat(other["tls.crt"], credential.MaxCerts-1)), true, true},
		"one twice":           {with("ca.crt", good["tls.crt"]+good["tls.crt"]), true, true},
		"two of a kind":       {map[string]string{"tls.crt": good["tls.crt"], "tls.key": good["tls.key"], "second.crt": other["tls.crt"], "second.key": other["tls.key"]}, true, true},
		"many authorities":    {with("ca.crt", strings.Repeat(other["tls.crt"], 900)), true, true},
		"P-224":               {values(curve(elliptic.P224()), -hour, hour), false, false},
		"RSA 1024":            {values(long(1024), -hour, hour), false, false},
		"another's key":       {with("tls.key", other["tls.key"]), false, false},
		"must be stapled":     {values(curve(elliptic.P256()), -hour, hour, pkix.Extension{Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: []byte{0x30, 3, 2, 1, 5}}), false, false},
		"no certificate":      {with("tls.crt", "x"), false, false},
		"no authority":        {with("ca.crt", "x"), false, false},
		"a megabyte of chain": {with("tls.crt", good["tls.crt"]+strings.Repeat(other["tls.crt"], 1500)), false, true},
	} {
		data := map[string][]byte{}
		for k, v := range c.data {
			data[k] = []byte(v)
		}
		_, faults := credential.Parse(data)
		checked := true
		for _, f := range faults {
			checked = checked && f.Severity != problem.Error
		}
		said := refusal(t, c.data)
		if checked != c.checked || (said == "") != c.taken {
			t.Errorf("%s: the check accepts it: %v (%v), want %v; Envoy does: %v, want %v: %s",
				name, checked, faults, c.checked, said == "", c.taken, said)
		}
	}
}
