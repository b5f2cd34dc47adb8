// Command lint contains the analyzers that `make check` runs in addition to go vet and staticcheck, as a `go vet
// -vettool`: errorlint (errors are compared with errors.Is and errors.As, and wrapped with %w) and exhaustive (a switch
// on an enumeration names every member, or has a default).
//
// It is a separate module, so that its dependencies are not Navarch's.
package main

import (
	"github.com/nishanths/exhaustive"
	"github.com/polyfloyd/go-errorlint/errorlint"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// foreign matches enumerations of which our switches need only some members.
const foreign = `^(crypto/|reflect\.|syscall\.|golang\.org/|google\.golang\.org/|github\.com/|istio\.io/)`

func main() {
	for name, value := range map[string]string{"default-signifies-exhaustive": "true", "ignore-enum-types": foreign,
		"ignore-enum-members": `\.(NumTypes|NumKinds|Unknown|KindInvalid)$`} { // the bounds of an enumeration are no members
		if err := exhaustive.Analyzer.Flags.Set(name, value); err != nil {
			panic(err) // a flag of another version
		}
	}
	unitchecker.Main(errorlint.NewAnalyzer(), exhaustive.Analyzer)
}
