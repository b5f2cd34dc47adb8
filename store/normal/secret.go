package normal

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/credential"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/pullsecret"
)

// ReadsOfSecrets reports whether this package reads the value of the given key in Secrets. A source of objects may drop
// the values of all other keys.
func ReadsOfSecrets(key string) bool { return key == pullsecret.Key || credential.Reads(key) }

// ReadsOfConfigMaps reports whether this package reads the value of the given key in ConfigMaps. A source of objects
// may drop the values of all other keys.
func ReadsOfConfigMaps(key string) bool {
	return key == meshKey || key == networksKey || credential.Public(key)
}

// tlsSecret is the type of Secrets with a certificate and its private key.
const tlsSecret = "kubernetes.io/tls"

// secretRecords returns the record of a Secret with TLS material or with credentials of image registries. Other Secrets
// yield no record, and the Secrets with the keys of the mesh's own CA yield no record either. The private key or the
// credentials are only in Result.Private, not in the record. No message quotes a value of the Secret.
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
	for key, value := range whole.StringData { // the API server merges stringData into data, files do not
		data[key] = []byte(value)
	}
	if whole.Type == pullsecret.Type {
		return r.pullSecret(obj, data[pullsecret.Key])
	}
	content, usable := r.credential(data)
	if !usable {
		return nil
	}
	if len(content.Chain)+len(content.Trust) == 0 {
		if whole.Type == tlsSecret {
			names := slices.Sorted(maps.Keys(data))
			if len(names) > 5 {
				names = append(names[:5], "...")
			}
			r.requiredf("data", "want keys tls.crt and tls.key, or cert and key, with content; there are: %s", strings.Join(names, ", "))
		}
		return nil
	}
	if r.private, r.until = content.Key, content.Until; content.At != "" {
		r.untilAt = "data." + content.At
	}
	return r.record(model.KindSecret, obj, obj.ID.Name,
		&model.SecretSpec{Chain: content.Chain, Ocsp: content.Ocsp, Trust: content.Trust, Crl: content.Crl})
}

// credential returns the TLS content in the values of a Secret or ConfigMap, and reports faults of the content. The
// result usable is false if the object has an error.
func (r *report) credential(data map[string][]byte) (content credential.Content, usable bool) {
	content, faults := credential.Parse(data)
	for _, f := range faults {
		field := "data"
		if f.Key != "" {
			field += "." + f.Key
		}
		if f.Severity == problem.Error {
			r.spoil(f.Code, field, "%s", f.Message)
		} else {
			r.warnf(f.Code, field, "%s", f.Message)
		}
	}
	return content, !r.spoiled
}

// authorityRecords returns the record of a ConfigMap with CA certificates, with which gateways verify clients and
// servers. It returns nil for other ConfigMaps. The record has kind KindSecret, and a name that no Secret can have.
func authorityRecords(r *report, obj *object.Object) []model.Record {
	var whole struct{ Data map[string]string }
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		return nil // not a ConfigMap of Kubernetes
	}
	data := map[string][]byte{}
	for key, value := range whole.Data {
		if credential.Public(key) {
			data[key] = []byte(value)
		}
	}
	content, usable := r.credential(data)
	if !usable || len(content.Trust) == 0 {
		return nil
	}
	return r.record(model.KindSecret, obj, model.ConfigMapPrefix+obj.ID.Name, &model.SecretSpec{Trust: content.Trust, Crl: content.Crl})
}

// pullSecret returns the record of a Secret with credentials of image registries.
func (r *report) pullSecret(obj *object.Object, credentials []byte) []model.Record {
	if len(credentials) > credential.MaxBytes {
		r.errorf("data."+pullsecret.Key, "has %d bytes, more than %d", len(credentials), credential.MaxBytes)
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
