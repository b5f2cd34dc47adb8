package main

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// secretHeading is the table of certificates that an Envoy uses. Keys are never in it: Envoy says [redacted].
var secretHeading = []string{"RESOURCE", "TYPE", "IDENTITY", "SERIAL", "NOT AFTER", "ISSUER", "EPOCH"}

// secretRows is one row for each certificate of a chain or a bundle, and one for each revocation list.
func secretRows(secret map[string]any) (rows [][]string) {
	name := text(secret["name"])
	for _, c := range certificatesIn(at(secret, "tls_certificate", "certificate_chain")) {
		kind := "leaf"
		if c.IsCA {
			kind = "issuer"
		}
		rows = append(rows, certificateRow(name, kind, c))
	}
	for _, c := range certificatesIn(at(secret, "validation_context", "trusted_ca")) {
		rows = append(rows, certificateRow(name, "root", c))
	}
	for _, block := range blocks(at(secret, "validation_context", "crl")) {
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
	if len(c.URIs) > 0 {
		identity = c.URIs[0].String()
	}
	return []string{name, kind, identity, c.SerialNumber.Text(16), c.NotAfter.UTC().Format(time.RFC3339), c.Issuer.CommonName, epochOf(c.Issuer.CommonName, c.AuthorityKeyId)}
}

// ownRoot is how ca/issue names the roots that it makes.
var ownRoot = regexp.MustCompile(`^Navarch root (\d+) [0-9a-f]+$`)

// epochOf is the number of the issuer's epoch, or, of an operator's own CA, whose name does not have it, the signer that
// `navarchctl ca status` lists beside the epoch.
func epochOf(issuer string, signer []byte) string {
	if m := ownRoot.FindStringSubmatch(issuer); m != nil {
		return m[1]
	}
	if len(signer) == 0 {
		return "-"
	}
	return "signer " + shortKey(hex.EncodeToString(signer))
}

// shortKey is enough of a key identifier to tell those of one mesh apart.
func shortKey(id string) string { return id[:min(len(id), 8)] }

func certificatesIn(source any) (all []*x509.Certificate) {
	for _, block := range blocks(source) {
		if c, err := x509.ParseCertificate(block); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// blocks are the PEM blocks of a core.v3.DataSource in proto JSON, where bytes are base64.
func blocks(source any) (all [][]byte) {
	s, _ := source.(map[string]any)
	raw := []byte(text(s["inline_string"]))
	if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text(s["inline_bytes"]))); err == nil && len(b) > 0 {
		raw = b
	}
	for {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			return all
		}
		all = append(all, block.Bytes)
	}
}
