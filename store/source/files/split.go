package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

type rawDoc struct {
	data  []byte
	wrong string
	line  int // number of lines of the file before the document
}

// split divides a file into documents: YAML at lines that start with ---, JSON at the end of each value.
func split(path string, data []byte) []rawDoc {
	if !strings.HasSuffix(path, ".json") {
		return splitYAML(data)
	}
	var docs []rawDoc
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		start := decoder.InputOffset()
		var raw json.RawMessage
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return docs
		case err != nil:
			return append(docs, rawDoc{data: data[start:], wrong: fmt.Sprintf("is no JSON: %v", err)})
		}
		docs = append(docs, rawDoc{data: raw})
	}
}

// splitYAML divides YAML at document separators. Inside a block scalar a line "---" must be indented, so checking the
// start of the line is enough (https://yaml.org/spec/1.2.2/#rule-c-forbidden).
func splitYAML(data []byte) []rawDoc {
	var docs []rawDoc
	start, line, lines := 0, 0, 0 // line: number of lines before start; lines: before at
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if text := bytes.TrimRight(data[at:end], "\r\n"); separator(text) {
			if body := data[start:at]; !blank(body) {
				docs = append(docs, rawDoc{data: body, line: line})
			}
			start, line = end, lines+1
			if rest := bytes.TrimSpace(text[3:]); len(rest) > 0 && rest[0] != '#' && text[0] == '-' {
				start, line = at+3, lines // "--- {kind: ...}": the document starts on the same line
			}
		}
		at = end
		lines++
	}
	return append(docs, rawDoc{data: data[start:], line: line})
}

// lineNumber matches the number of a line in an error of the YAML library.
var lineNumber = regexp.MustCompile(`\bline (\d+):`)

// inFile returns an error about a document, with line numbers of the file. before is the number of lines before the
// document.
func inFile(text string, before int) string {
	return lineNumber.ReplaceAllStringFunc(text, func(match string) string {
		n, err := strconv.Atoi(match[len("line ") : len(match)-1])
		if err != nil {
			return match
		}
		return fmt.Sprintf("line %d:", n+before)
	})
}

func separator(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || line[3] == ' ' || line[3] == '\t'
}

func blank(data []byte) bool { return len(bytes.TrimSpace(data)) == 0 }
