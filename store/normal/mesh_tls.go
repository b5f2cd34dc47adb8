package normal

import (
	"fmt"
	"slices"
	"strings"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/problem"
)

// serverCiphers are the cipher suites that Istio accepts, as documented at ServerTLSSettings.cipher_suites. Envoy
// refuses a listener or a cluster with an unknown suite.
var serverCiphers = []string{"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384",
	"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
	"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
	"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA", "DES-CBC3-SHA"}

// clientCiphers are the cipher suites that tlsDefaults may contain for clients. Istio sends the suites of tlsDefaults
// to proxies unchanged. Therefore the two further suites that Envoy 1.40 accepts are valid too.
var clientCiphers = append(slices.Clone(serverCiphers), "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256")

// ecdhCurves maps the curves that Envoy accepts to their alternative names, or to "" if there is no other name. Istio
// also accepts P-224 and a hybrid with Kyber, which Envoy 1.40 refuses.
var ecdhCurves = map[string]string{"P-256": "prime256v1", "P-384": "secp384r1", "P-521": "secp521r1", "X25519": "x25519",
	"X25519MLKEM768": ""}

// checkMeshTLS validates meshMTLS and tlsDefaults as Istio's validation does (pkg/config/validation/agent,
// ValidateMeshTLSConfig and ValidateMeshTLSDefaults). Unknown and repeated cipher suites and curves are reported and
// removed, since proxies would refuse all clusters with them. An unknown minimum version is an error, and so are curves
// in meshMTLS.
func checkMeshTLS(r *report, config *meshv1.MeshConfig) {
	const servers, defaults = "data.mesh.meshMTLS", "data.mesh.tlsDefaults"
	if tls := config.GetMeshMTLS(); tls != nil {
		checkMinVersion(r, servers, tls)
		tls.CipherSuites = knownCiphers(r, servers+".cipherSuites", tls.CipherSuites, serverCiphers)
		if len(tls.EcdhCurves) > 0 {
			r.errorf(servers+".ecdhCurves", "is not supported by Istio: set ecdhCurves of tlsDefaults")
		}
	}
	if tls := config.GetTlsDefaults(); tls != nil {
		checkMinVersion(r, defaults, tls)
		tls.CipherSuites = knownCiphers(r, defaults+".cipherSuites", tls.CipherSuites, clientCiphers)
		tls.EcdhCurves = knownCurves(r, defaults+".ecdhCurves", tls.EcdhCurves)
	}
}

// checkMinVersion reports an unknown minimum version of TLS.
func checkMinVersion(r *report, at string, tls *meshv1.MeshConfig_TLSConfig) {
	if v := tls.MinProtocolVersion; meshv1.MeshConfig_TLSConfig_TLSProtocol_name[int32(v)] == "" {
		r.errorf(at+".minProtocolVersion", "unknown value %d", v)
	}
}

// knownCiphers returns the valid entries of stated, a list of cipher suites. It reports and omits unknown and repeated
// entries. The parameter suites has the valid suites. An entry is a suite, a group of equal preference ([A|B]), ALL, or
// a suite after an operator (+A, -A, !A). The last form is valid only if the first valid entry is ALL.
func knownCiphers(r *report, at string, stated, suites []string) (known []string) {
	inSuites := func(name string) bool { return slices.Contains(suites, name) }
	for i, name := range stated {
		group, equal := strings.CutPrefix(name, "[")
		group, closed := strings.CutSuffix(group, "]")
		valid := inSuites(name) || name == "ALL"
		switch {
		case equal && closed:
			valid = !slices.ContainsFunc(strings.Split(group, "|"), func(s string) bool { return !inSuites(s) })
		case name != "" && strings.Contains("+-!", name[:1]):
			valid = inSuites(name[1:]) && len(known) > 0 && known[0] == "ALL"
		}
		switch {
		case !valid:
			r.warnf(problem.Invalid, fmt.Sprintf("%s[%d]", at, i), "%q is not a cipher suite that proxies support; the entry is left out", name)
		case slices.Contains(known, name):
			r.warnf(problem.Duplicate, fmt.Sprintf("%s[%d]", at, i), "%q occurs twice", name)
		default:
			known = append(known, name)
		}
	}
	return known
}

// knownCurves returns the curves in stated that Envoy accepts. It reports and omits unknown and repeated curves,
// because Envoy refuses both.
func knownCurves(r *report, at string, stated []string) (accepted []string) {
	first := map[string]bool{}
	for i, name := range stated {
		curve, known := curveOf(name)
		switch {
		case !known:
			r.warnf(problem.Invalid, fmt.Sprintf("%s[%d]", at, i), "%q is not a curve that proxies support; the entry is left out", name)
		case first[curve]:
			r.warnf(problem.Duplicate, fmt.Sprintf("%s[%d]", at, i), "%q occurs twice", name)
		default:
			first[curve], accepted = true, append(accepted, name)
		}
	}
	return accepted
}

// curveOf returns the key of a curve in ecdhCurves, given its key or its alternative name. The result known is false if
// the name is neither.
func curveOf(name string) (curve string, known bool) {
	for curve, other := range ecdhCurves {
		if name != "" && (name == curve || name == other) {
			return curve, true
		}
	}
	return "", false
}
