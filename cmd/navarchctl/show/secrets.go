package show

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// secretRows returns one row for each certificate of a chain or bundle, and for each revocation list. A Secret without
// them has one row with dashes. The first certificate of a chain is the leaf, even if it is a CA certificate, as
// self-signed certificates often are.
func secretRows(_ Filter, m proto.Message) (rows [][]string) {
	secret, _ := m.(*tlsv3.Secret)
	name := secret.GetName()
	for i, c := range certificatesIn(secret.GetTlsCertificate().GetCertificateChain()) {
		kind := "leaf"
		if i > 0 {
			kind = "issuer"
		}
		rows = append(rows, certificateRow(name, kind, c))
	}
	for _, c := range certificatesIn(secret.GetValidationContext().GetTrustedCa()) {
		rows = append(rows, certificateRow(name, "root", c))
	}
	for _, block := range blocks(secret.GetValidationContext().GetCrl()) {
		if list, err := x509.ParseRevocationList(block); err == nil {
			rows = append(rows, []string{name, "crl", "-", fmt.Sprintf("%d revoked", len(list.RevokedCertificateEntries)),
				list.NextUpdate.UTC().Format(time.RFC3339), list.Issuer.CommonName, epochOf(list.Issuer.CommonName, list.AuthorityKeyId)})
		}
	}
	if rows == nil {
		rows = [][]string{{name, "-", "-", "-", "-", "-", "-"}}
	}
	return rows
}

func certificateRow(name, kind string, c *x509.Certificate) []string {
	identity := "-"
	switch {
	case len(c.URIs) > 0:
		identity = c.URIs[0].String()
	case len(c.DNSNames) > 0 && kind == "leaf": // the certificate of a gateway's server
		identity = strings.Join(c.DNSNames, ",")
	}
	return []string{name, kind, identity, c.SerialNumber.Text(16),
		c.NotAfter.UTC().Format(time.RFC3339), c.Issuer.CommonName, epochOf(c.Issuer.CommonName, c.AuthorityKeyId)}
}

// ownRoot matches the common names of the roots that package issue makes.
var ownRoot = regexp.MustCompile(`^Navarch root (\d+) [0-9a-f]+$`)

// epochOf returns the epoch (the number of a CA key in the mesh's keyring) that an issuer's name contains. Names of an
// operator's own CA contain no epoch. For such a name the result is "signer" and the start of the signer's key
// identifier. In the output of navarchctl ca status, the key identifier is beside the epoch. Without a key identifier
// the result is "-".
func epochOf(issuer string, signer []byte) string {
	if m := ownRoot.FindStringSubmatch(issuer); m != nil {
		return m[1]
	}
	if len(signer) == 0 {
		return "-"
	}
	return "signer " + ShortKey(hex.EncodeToString(signer))
}

// ShortKey returns the first eight characters of a hexadecimal key identifier, or the whole of a shorter identifier.
// Eight characters suffice to distinguish the keys of a mesh.
func ShortKey(id string) string { return id[:min(len(id), 8)] }

// certificatesIn returns the certificates in the inline PEM of a source. Blocks that cannot be parsed are omitted.
func certificatesIn(source *corev3.DataSource) (all []*x509.Certificate) {
	for _, block := range blocks(source) {
		if c, err := x509.ParseCertificate(block); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// blocks returns the contents of the PEM blocks in the inline bytes or text of a source.
func blocks(source *corev3.DataSource) (all [][]byte) {
	raw := source.GetInlineBytes()
	if len(raw) == 0 {
		raw = []byte(source.GetInlineString())
	}
	for {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			return all
		}
		all = append(all, block.Bytes)
	}
}
