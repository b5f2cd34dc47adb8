package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

// component is an element of a CycloneDX list (https://cyclonedx.org/docs/1.6/json) for a file that is not a Go
// program. cyclonedx-gomod lists the components of Go programs.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Hashes  []hash `json:"hashes"`

	from string
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// listed returns the list of cyclonedx-gomod without the hashes of that tool, which is built on each machine.
func listed(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list map[string]any
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	metadata, _ := list["metadata"].(map[string]any)
	tools, _ := metadata["tools"].([]any)
	for _, tool := range tools {
		if of, is := tool.(map[string]any); is {
			delete(of, "hashes")
		}
	}
	return json.MarshalIndent(list, "", "  ")
}

// bill returns the list of components as JSON, with the hashes of their files.
func bill(components []component) ([]byte, error) {
	slices.SortFunc(components, func(a, b component) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name)) })
	for i := range components {
		file, err := os.Open(components[i].from)
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		_ = file.Close()
		if err != nil {
			return nil, err
		}
		components[i].Hashes = []hash{{"SHA-256", hex.EncodeToString(sum.Sum(nil))}}
	}
	return json.MarshalIndent(struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Components []component `json:"components"`
	}{"CycloneDX", "1.6", 1, components}, "", "  ")
}
