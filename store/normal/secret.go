package normal

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"

	"golang.org/x/crypto/ocsp"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/pullsecret"
)

// secretKeys are the two sets of keys that Istio reads, the first first
// (istio: pilot/pkg/credentials/kube/secrets.go, ExtractCertInfo and extractRoot).
var secretKeys = []secretKeyNames{
	{"cert", "key", "cacert", "crl", ""},
	{"tls.crt", "tls.key", "ca.crt", "ca.crl", "tls.ocsp-staple"},
}

type secretKeyNames struct{ chain, key, trust, crl, ocsp string }

// ReadsOfSecrets says whether records are made of what a Secret has at a key: sources need not keep the rest.
func ReadsOfSecrets(key string) bool {
	return key == pullsecret.Key || key != "" && slices.ContainsFunc(secretKeys, func(keys secretKeyNames) bool {
		return slices.Contains([]string{keys.chain, keys.key, keys.trust, keys.crl, keys.ocsp}, key)
	})
}

const tlsSecret = "kubernetes.io/tls"

// maxSecret bounds the parts of a Secret, bytes: what Kubernetes allows for all of it.
const maxSecret = 1 << 20

// secretRecords reads a Secret of TLS material, or of credentials of image registries. Of others nothing is kept, and so it is with the CA's own keys: proxies
// have no business with them. The private key, or the credentials, leave by Result.Private alone; no message shows what is in a Secret.
func secretRecords(n *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	var whole struct {
		Type       string
		Data       map[string][]byte
		StringData map[string]string
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("data", "cannot be read: want strings, in base64 below data") // encoding/json may quote the value
		return nil
	}
	if own := obj.ID.Name == "cacerts" || obj.ID.Name == "istio-ca-secret"; own && obj.ID.Namespace == n.SystemNamespace {
		return nil
	}
	if !slices.Contains([]string{tlsSecret, pullsecret.Type, "Opaque", ""}, whole.Type) {
		return nil
	}
	data := whole.Data
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range whole.StringData { // the API server folds it in; a file has it as it was written
		data[key] = []byte(value)
	}
	if whole.Type == pullsecret.Type {
		return r.pullSecret(obj, data[pullsecret.Key])
	}
	spec, key := &model.SecretSpec{}, model.PrivateKey(nil)
	for _, keys := range secretKeys {
		if len(spec.Chain) == 0 && len(data[keys.chain]) > 0 && len(data[keys.key]) > 0 {
			spec.Chain, key = r.pair(data, keys.chain, keys.key)
			spec.Ocsp = r.staple(data, keys.ocsp)
			spec.Crl = r.blocks(data, keys.crl, "X509 CRL", parseCRL)
		}
	}
	for _, keys := range secretKeys {
		if len(spec.Trust) == 0 {
			spec.Trust = r.blocks(data, keys.trust, "CERTIFICATE", parseCertificate)
			if len(spec.Trust) > 0 && len(spec.Crl) == 0 {
				spec.Crl = r.blocks(data, keys.crl, "X509 CRL", parseCRL)
			}
		}
	}
	if len(spec.Chain)+len(spec.Trust) == 0 && !r.spoiled {
		if whole.Type == tlsSecret {
			names := slices.Sorted(maps.Keys(data))
			if len(names) > 5 {
				names = append(names[:5], "...")
			}
			r.requiredf("data", "want keys tls.crt and tls.key, or cert and key, with content; there are: %s", strings.Join(names, ", "))
		}
		return nil
	}
	if r.spoiled {
		return nil
	}
	r.private = key
	return r.record(model.KindSecret, obj, obj.ID.Name, spec)
}

// pullSecret reads credentials of image registries.
func (r *report) pullSecret(obj *object.Object, credentials []byte) []model.Record {
	if len(credentials) > maxSecret {
		r.errorf("data."+pullsecret.Key, "has %d bytes, more than %d", len(credentials), maxSecret)
		return nil
	}
	registries, err := pullsecret.Registries(credentials)
	if err != nil {
		r.errorf("data."+pullsecret.Key, "%v", err)
		return nil
	}
	r.private = credentials
	return r.record(model.KindSecret, obj, obj.ID.Name, &model.SecretSpec{Registries: registries})
}

// pair reads a certificate chain and its private key. Both are encoded again, so that white space makes no difference and
// a key that stands among the certificates goes nowhere.
func (r *report) pair(data map[string][]byte, chainAt, keyAt string) (chain []byte, key model.PrivateKey) {
	chain = r.blocks(data, chainAt, "CERTIFICATE", parseCertificate)
	if r.spoiled {
		return nil, nil
	}
	for rest := data[keyAt]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			r.requiredf("data."+keyAt, "has no private key in PEM")
			return nil, nil
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			key = pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
			break
		}
	}
	switch _, err := tls.X509KeyPair(chain, key); {
	case err == nil:
		return chain, key
	case strings.Contains(err.Error(), "does not match"):
		r.errorf("data."+keyAt, "the private key does not belong to the certificate in data.%s", chainAt)
	default:
		r.errorf("data."+keyAt, "is not a private key that can be read (encrypted ones cannot)")
	}
	return nil, nil
}

// blocks are the PEM blocks of one kind at a key, each parsed, encoded again; nil where there is nothing at the key.
func (r *report) blocks(data map[string][]byte, at, kind string, parse func([]byte) error) []byte {
	if at == "" || len(data[at]) == 0 {
		return nil
	}
	if len(data[at]) > maxSecret {
		r.errorf("data."+at, "has %d bytes, more than %d", len(data[at]), maxSecret)
		return nil
	}
	var out bytes.Buffer
	for rest := data[at]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != kind {
			continue
		}
		if err := parse(block.Bytes); err != nil {
			r.errorf("data."+at, "a %s cannot be read: %v", strings.ToLower(kind), err)
			return nil
		}
		_ = pem.Encode(&out, &pem.Block{Type: kind, Bytes: block.Bytes}) // a buffer takes everything
	}
	if out.Len() == 0 {
		r.requiredf("data."+at, "has no %s in PEM", kind)
	}
	return out.Bytes()
}

func parseCertificate(der []byte) error { _, err := x509.ParseCertificate(der); return err }

func parseCRL(der []byte) error { _, err := x509.ParseRevocationList(der); return err }

// staple is a stapled OCSP response, left out where it cannot be read: Envoy would refuse the certificate with it.
func (r *report) staple(data map[string][]byte, at string) []byte {
	if at == "" || len(data[at]) == 0 {
		return nil
	}
	if _, err := ocsp.ParseResponse(data[at], nil); err != nil {
		r.warnf(problem.Invalid, "data."+at, "is no OCSP response; it is left out")
		return nil
	}
	return data[at]
}
