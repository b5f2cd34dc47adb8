package analyze

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// The parts of SARIF 2.1.0 that are written (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string      `json:"id"`
		Name    string      `json:"name,omitempty"`
		HelpURI string      `json:"helpUri,omitempty"`
		Default sarifConfig `json:"defaultConfiguration"`
	}
	sarifConfig struct {
		Level string `json:"level"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// WriteSARIF writes findings as a SARIF 2.1.0 log, one result for each finding. The codes become the rules of the log.
// Errors are those of w.
func WriteSARIF(w io.Writer, all []Finding) error {
	return WriteSARIFOf(w, "navarchctl analyze", func(code string) string { return problem.Analyzer(code).Name() }, all)
}

// WriteSARIFOf writes the findings of another tool, with the given name, as WriteSARIF does. The function name must
// return the name of a code. If it returns "", the rule of that code has no name. Errors are those of w.
func WriteSARIFOf(w io.Writer, tool string, name func(code string) string, all []Finding) error {
	rules, index := []sarifRule{}, map[string]int{}
	results := []sarifResult{}
	for _, f := range all {
		at, known := index[f.Code]
		if !known {
			at = len(rules)
			index[f.Code], rules = at, append(rules, ruleOf(f, name(f.Code)))
		}
		text := strings.Join(slices.DeleteFunc([]string{f.Object, f.Field, f.Message}, func(part string) bool { return part == "" }), ": ")
		results = append(results, sarifResult{RuleID: f.Code, RuleIndex: at, Level: sarifLevel(f.Severity),
			Message:   sarifText{show.Printable(text)},
			Locations: locationsOf(f), Fingerprints: map[string]string{"navarchObject/v1": fingerprint(f)}})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{Tool: sarifTool{sarifDriver{Name: tool, Version: obs.Version, Rules: rules}}, Results: results}}})
}

// ruleOf returns the rule of a finding's code.
func ruleOf(f Finding, name string) sarifRule {
	code := problem.Analyzer(f.Code)
	r := sarifRule{ID: f.Code, Name: name, Default: sarifConfig{sarifLevel(f.Severity)}}
	if code.Name() != "" && !code.Own() {
		r.HelpURI = "https://istio.io/latest/docs/reference/config/analysis/" + strings.ToLower(f.Code) + "/"
	}
	return r
}

// sarifLevel returns a severity in the words of SARIF.
func sarifLevel(s problem.Severity) string {
	if s == problem.Info {
		return "note"
	}
	return string(s)
}

// locationsOf returns the file and object of a finding in one location. It returns nil if the finding has neither.
// Standard input ("-") is not a file.
func locationsOf(f Finding) []sarifLocation {
	var l sarifLocation
	if f.File != "" && f.File != "-" {
		l.Physical = &sarifPhysical{Artifact: sarifArtifact{fileURI(f.File)}}
		if f.Line > 0 {
			l.Physical.Region = &sarifRegion{f.Line}
		}
	}
	if f.Object != "" {
		l.Logical = []sarifLogical{{show.Printable(f.Object), "object"}}
	}
	if l.Physical == nil && l.Logical == nil {
		return nil
	}
	return []sarifLocation{l}
}

// fileURI returns the URI of a file: file:// for an absolute path, else a relative reference.
func fileURI(path string) string {
	path = filepath.ToSlash(filepath.Clean(path))
	if strings.HasPrefix(path, "/") {
		return (&url.URL{Scheme: "file", Path: path}).String()
	}
	return strings.TrimPrefix((&url.URL{Path: path}).String(), "./")
}

// fingerprint identifies a finding independently of lines and list indexes.
func fingerprint(f Finding) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", f.Code, f.Object, withoutIndexes(f.Field), f.Message))
	return hex.EncodeToString(sum[:16])
}
