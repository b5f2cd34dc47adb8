package gateway

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/secret"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
)

// refer replaces the file paths in a server's TLS settings by secrets that contain the paths. If a listener names a
// missing file, Envoy refuses the whole listener. If a secret names the file, Envoy refuses only the secret, and only
// handshakes with this server fail. If the agent serves files as secrets, refer changes nothing. It keeps the files of
// a Foreign server, which close its chain (listener.ServerChain.Fault).
func (f *Front) refer(tls *listener.ServerTLS, found *[]input.Problem) {
	caps := f.Key.Edge.Value().Caps
	if caps.Has(xds.CapFileSecrets) || tls.Foreign != "" || tls.Mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL {
		return
	}
	add := func(s secret.Files) listener.Secret {
		f.Fixed(s, found)
		return listener.Secret{Name: s.Name}
	}
	pair := func(certificate, key string) listener.Secret {
		return add(secret.Files{Name: xds.FileCertificate(certificate, key), Certificate: certificate, Key: key})
	}
	whole := tls.Certificate != "" && tls.Key != "" && (tls.Certificate2 == "") == (tls.Key2 == "")
	if whole && tls.Secrets.Len() == 0 {
		own := []listener.Secret{pair(tls.Certificate, tls.Key)}
		if tls.Certificate2 != "" {
			own = append(own, pair(tls.Certificate2, tls.Key2))
		}
		tls.Secrets = secrets.List(own...)
		tls.Certificate, tls.Key, tls.Certificate2, tls.Key2 = "", "", "", ""
	}
	if tls.Mode != networkingv1.ServerTLSSettings_SIMPLE && tls.Trust == (listener.Secret{}) && tls.Authorities != "" {
		tls.Trust = add(secret.Files{Name: xds.FileAuthorities(tls.Authorities, tls.Revoked),
			Authorities: tls.Authorities, Revoked: tls.Revoked})
		tls.Authorities, tls.Revoked = "", ""
	}
}
