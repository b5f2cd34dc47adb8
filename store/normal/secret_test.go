package normal

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/pullsecret"
)

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key, crl string }

func newPair(t testing.TB) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "web"}, IsCA: true, BasicConstraintsValid: true,
		SubjectKeyId: []byte("web"), KeyUsage: x509.KeyUsageCRLSign, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crl, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), NextUpdate: time.Now().Add(time.Hour)}, template, key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return pair{encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private), encode("X509 CRL", crl)}
}

// secret returns a Secret as an API server does.
func secret(t testing.TB, name, kind string, data map[string]string) *object.Object {
	t.Helper()
	encoded := map[string]string{}
	for k, v := range data {
		encoded[k] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": map[string]any{"name": name, "namespace": "shop"}, "data": encoded})
	if err != nil {
		t.Fatal(err)
	}
	return &object.Object{ID: object.ID{Kind: "Secret", Namespace: "shop", Name: name}, Version: "v1", JSON: raw, Location: "test.yaml#1"}
}

func TestSecrets(t *testing.T) {
	a, b := newPair(t), newPair(t)
	for name, c := range map[string]struct {
		kind       string
		data       map[string]string
		chain      string // empty: no record with a chain
		trust, crl string
		key        string
		problems   []string
	}{
		"tls":                     {tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": a.key}, a.cert, "", "", a.key, nil},
		"with trust and CRL":      {tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": a.key, "ca.crt": b.cert, "ca.crl": b.crl}, a.cert, b.cert, b.crl, a.key, nil},
		"generic":                 {"Opaque", map[string]string{"cert": a.cert, "key": a.key, "cacert": b.cert, "crl": b.crl}, a.cert, b.cert, b.crl, a.key, nil},
		"no type":                 {"", map[string]string{"tls.crt": a.cert, "tls.key": a.key}, a.cert, "", "", a.key, nil},
		"generic goes first":      {"Opaque", map[string]string{"cert": a.cert, "key": a.key, "tls.crt": b.cert, "tls.key": b.key}, a.cert, "", "", a.key, nil},
		"trust alone":             {"Opaque", map[string]string{"ca.crt": a.cert + b.cert}, "", a.cert + b.cert, "", "", nil},
		"trust alone, generic":    {"Opaque", map[string]string{"cacert": a.cert, "crl": a.crl}, "", a.cert, a.crl, "", nil},
		"white space and remarks": {tlsSecret, map[string]string{"tls.crt": "# mine\r\n\n" + a.cert + "\n\n", "tls.key": "\n" + a.key + "\n"}, a.cert, "", "", a.key, nil},
		// A file of certificate and key together is common; the key must not get out as a "certificate".
		"key among the certificates": {tlsSecret, map[string]string{"tls.crt": a.key + a.cert, "tls.key": a.cert + a.key}, a.cert, "", "", a.key, nil},
		"staple that is none":        {tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": "x"}, a.cert, "", "", a.key, []string{"warning data.tls.ocsp-staple: is no OCSP response"}},

		"of an account":          {"kubernetes.io/service-account-token", map[string]string{"ca.crt": a.cert, "token": "x"}, "", "", "", "", nil},
		"a password":             {"Opaque", map[string]string{"key": "hunter2"}, "", "", "", "", nil},
		"nothing":                {tlsSecret, nil, "", "", "", "", []string{"data: want keys tls.crt and tls.key, or cert and key, with content; there are: "}},
		"only a certificate":     {tlsSecret, map[string]string{"tls.crt": a.cert}, "", "", "", "", []string{"data: want keys|there are: tls.crt"}},
		"a key of another":       {tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": b.key}, "", "", "", "", []string{"data.tls.key: the private key does not belong to the certificate in data.tls.crt"}},
		"no key":                 {tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": a.cert}, "", "", "", "", []string{"data.tls.key: has no private key in PEM"}},
		"a broken key":           {"Opaque", map[string]string{"cert": a.cert, "key": strings.Replace(a.key, "M", "A", 1)}, "", "", "", "", []string{"data.key: is not a private key that can be read"}},
		"no certificate":         {tlsSecret, map[string]string{"tls.crt": a.key, "tls.key": a.key}, "", "", "", "", []string{"data.tls.crt: has no CERTIFICATE in PEM"}},
		"a broken certificate":   {tlsSecret, map[string]string{"tls.crt": strings.Replace(a.cert, "M", "A", 1), "tls.key": a.key}, "", "", "", "", []string{"data.tls.crt: a certificate cannot be read"}},
		"a broken CRL":           {tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": a.key, "ca.crl": a.cert}, "", "", "", "", []string{"data.ca.crl: has no X509 CRL in PEM"}},
		"too many certificates":  {"Opaque", map[string]string{"ca.crt": strings.Repeat(a.cert, 4000)}, "", "", "", "", []string{"data: has|bytes of certificates and keys, more than"}},
		"broken trust of a pair": {tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": a.key, "ca.crt": "x"}, "", "", "", "", []string{"data.ca.crt: has no CERTIFICATE in PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			result := testNormal.Object(secret(t, "web", c.kind, c.data), &fake{})
			wantProblems(t, result.Problems, c.problems...)
			if string(result.Private) != c.key {
				t.Errorf("the private key has %d bytes, want %d", len(result.Private), len(c.key))
			}
			if c.chain+c.trust == "" {
				if len(result.Records) > 0 {
					t.Errorf("records %v", result.Records)
				}
				return
			}
			if len(result.Records) != 1 {
				t.Fatalf("%d records", len(result.Records))
			}
			r := result.Records[0].(*model.Secret)
			if r.Key != (model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "web"}) || SourceObject(r.Key) != (object.ID{Kind: "Secret", Namespace: "shop", Name: "web"}) {
				t.Errorf("key %v of %v", r.Key, SourceObject(r.Key))
			}
			if string(r.Spec.Chain) != c.chain || string(r.Spec.Trust) != c.trust || string(r.Spec.Crl) != c.crl {
				t.Errorf("record %v", r.Spec)
			}
		})
	}
}

// For registry credentials the record lists the registries.
func TestPullSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		data       map[string]string
		registries []string
		problem    string
	}{
		"two":     {map[string]string{".dockerconfigjson": `{"auths": {"b.example": {"auth": "hunter2"}, "https://a.example/v1/": {}}}`}, []string{"a.example", "b.example"}, ""},
		"none":    {map[string]string{".dockerconfigjson": `{"auths": {}}`}, nil, "data..dockerconfigjson: has no credentials"},
		"no key":  {map[string]string{"other": "hunter2"}, nil, "data..dockerconfigjson: is no JSON of Docker's configuration"},
		"no JSON": {map[string]string{".dockerconfigjson": `hunter2`}, nil, "data..dockerconfigjson: is no JSON of Docker's configuration"},
		"large":   {map[string]string{".dockerconfigjson": strings.Repeat("hunter2", 200_000)}, nil, "data..dockerconfigjson: has 1400000 bytes"},
	} {
		result := testNormal.Object(secret(t, "pull", pullsecret.Type, c.data), &fake{})
		if c.problem != "" {
			wantProblems(t, result.Problems, c.problem)
			if len(result.Records) > 0 || result.Private != nil || strings.Contains(fmt.Sprint(result.Problems), "hunter2") {
				t.Errorf("%s: %v, %v", name, result.Records, result.Problems)
			}
			continue
		}
		wantProblems(t, result.Problems)
		if len(result.Records) != 1 || string(result.Private) != c.data[".dockerconfigjson"] {
			t.Fatalf("%s: %v", name, result.Records)
		}
		if r := result.Records[0].(*model.Secret); !slices.Equal(r.Spec.Registries, c.registries) || len(r.Spec.Chain)+len(r.Spec.Key) > 0 || strings.Contains(r.Spec.String(), "hunter2") {
			t.Errorf("%s: %v", name, r.Spec)
		}
	}
}

// Neither the record nor any message about a Secret contains the private key.
func TestSecretsAreNotShown(t *testing.T) {
	a, b := newPair(t), newPair(t)
	for _, data := range []map[string]string{
		{"tls.crt": a.cert, "tls.key": a.key}, {"tls.crt": b.cert, "tls.key": a.key}, {"tls.crt": a.key, "tls.key": a.key}, {"tls.crt": a.cert, "tls.key": a.key, "ca.crt": a.key},
		{"tls.crt": a.cert, "tls.key": "-----BEGIN PRIVATE KEY-----\n" + strings.Split(a.key, "\n")[1]}, {"tls.crt": a.key + a.cert, "tls.key": a.key},
	} {
		result := testNormal.Object(secret(t, "web", tlsSecret, data), &fake{})
		text := fmt.Sprintf("%v %+v %#v %s", result, result, result, result.Private)
		for _, r := range result.Records {
			raw, err := model.Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			text += string(raw) + fmt.Sprint(r.Body())
		}
		if shown, err := json.Marshal(result.Private); err != nil || string(shown) != `"[sealed]"` && len(result.Private) > 0 {
			t.Errorf("as JSON: %s %v", shown, err)
		}
		block, _ := pem.Decode([]byte(a.key))
		for _, part := range []string{strings.Split(a.key, "\n")[1], string(block.Bytes), string(block.Bytes[10:30])} {
			if strings.Contains(text, part) {
				t.Errorf("the private key is shown: %q", text)
			}
		}
	}
}

// The CA's own keys are no business of proxies; elsewhere the name means nothing.
func TestSecretsOfTheCA(t *testing.T) {
	a := newPair(t)
	for _, name := range []string{"cacerts", "istio-ca-secret"} {
		o := secret(t, name, tlsSecret, map[string]string{"tls.crt": a.cert, "tls.key": a.key})
		if r := testNormal.Object(o, &fake{}); len(r.Records) != 1 {
			t.Errorf("%s in another namespace: %v", name, r)
		}
		o.ID.Namespace = "istio-system"
		if r := testNormal.Object(o, &fake{}); len(r.Records)+len(r.Problems)+len(r.Private) != 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// In a file, stringData is as it was written; the API server would have folded it in.
func TestSecretStringData(t *testing.T) {
	a := newPair(t)
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "type": tlsSecret, "metadata": map[string]any{"name": "web", "namespace": "shop"},
		"data": map[string]string{"tls.crt": "eA=="}, "stringData": map[string]string{"tls.crt": a.cert, "tls.key": a.key}})
	if err != nil {
		t.Fatal(err)
	}
	r := testNormal.Object(read(t, string(text)), &fake{})
	if len(r.Records) != 1 || string(r.Private) != a.key {
		t.Errorf("%v", r)
	}
}

func FuzzSecret(f *testing.F) {
	a := newPair(f)
	f.Add(a.cert, a.key, a.cert, a.crl)
	f.Add(a.key, a.cert, "", "x")
	f.Fuzz(func(t *testing.T, cert, key, trust, crl string) {
		o := secret(t, "web", tlsSecret, map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": trust, "ca.crl": crl})
		r := testNormal.Object(o, &fake{})
		if r.Spoiled != (len(r.Records) == 0) || r.Spoiled == (len(r.Problems) == 0) && len(r.Problems) > 0 && r.Problems[0].Severity != problem.Warning {
			t.Errorf("%v", r)
		}
		for _, one := range r.Records {
			if raw, err := model.Encode(one); err != nil || bytes.Contains(raw, []byte("PRIVATE KEY-----")) {
				t.Errorf("the record has a key in it, or does not encode: %v", err)
			}
		}
	})
}

// The record of a ConfigMap has certificates of authorities, with their revocation list, and nothing else. Names of
// Secrets and ConfigMaps do not clash.
// Promise: security-gateways.md#keys-secrets-and-configmaps
func TestConfigMapsOfAuthorities(t *testing.T) {
	a := newPair(t)
	of := func(data map[string]string) Result {
		raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "web", "namespace": "shop"}, "data": data})
		if err != nil {
			t.Fatal(err)
		}
		return testNormal.Object(&object.Object{ID: object.ID{Kind: "ConfigMap", Namespace: "shop", Name: "web"}, Version: "v1", JSON: raw}, &fake{})
	}
	r := of(map[string]string{"ca.crt": a.key + a.cert, "ca.crl": a.crl, "tls.crt": a.cert, "tls.key": a.key})
	wantProblems(t, r.Problems)
	if len(r.Records) != 1 || r.Private != nil {
		t.Fatalf("%v", r)
	}
	s := r.Records[0].(*model.Secret)
	if s.Key.Name != model.ConfigMapPrefix+"web" || SourceObject(s.Key) != (object.ID{Kind: "ConfigMap", Namespace: "shop", Name: "web"}) {
		t.Errorf("key %v of %v", s.Key, SourceObject(s.Key))
	}
	if string(s.Spec.Trust) != a.cert || string(s.Spec.Crl) != a.crl || len(s.Spec.Chain) > 0 {
		t.Errorf("%v", s.Spec)
	}
	if r := of(map[string]string{"cacert": "x"}); !r.Spoiled {
		t.Errorf("a broken one: %v", r)
	}
	if r := of(map[string]string{"app.conf": "x", "tls.crt": a.cert}); r.Spoiled || len(r.Records)+len(r.Problems) > 0 {
		t.Errorf("one of another use: %v", r)
	}
}
