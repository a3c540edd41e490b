package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// example is a request of the API's description.
type example struct {
	name string
	request
}

// examples returns every example of a body in the API's description, an OpenAPI file, as a request without a token, and
// each path with addresses and ids in it.
func examples(api, file string) (all []example) {
	description, err := openapi3.NewLoader().LoadFromFile(file)
	steps.OK(err, "the API's description ", file)
	paths := description.Paths.Map()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		operations := paths[path].Operations()
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			operation := operations[method]
			if operation.Security != nil && len(*operation.Security) == 0 {
				continue // it is not reached from outside
			}
			bodies := bodiesOf(operation)
			for _, name := range slices.Sorted(maps.Keys(bodies)) {
				title := strings.TrimSpace(operation.OperationID + " " + name)
				all = append(all, example{title, request{method: method, url: api + filled(path), body: bodies[name]}})
			}
		}
	}
	return all
}

// bodiesOf returns the bodies by name. Without an example it has one that is empty.
func bodiesOf(operation *openapi3.Operation) map[string][]byte {
	bodies := make(map[string][]byte)
	media := &openapi3.MediaType{}
	if operation.RequestBody != nil {
		media = cmp.Or(operation.RequestBody.Value.Content.Get("application/json"), media)
	}
	if media.Example != nil {
		bodies["example"] = encoded(media.Example)
	}
	for name, e := range media.Examples {
		bodies[name] = encoded(e.Value.Value)
	}
	if len(bodies) == 0 {
		bodies[""] = nil
	}
	return bodies
}

func encoded(value any) []byte { return steps.Value(json.Marshal(value)) }

const exampleSubmitter = "eip155:11155111:0x02e4a7d2f3c4b5a697887766554433221100ffee"

// filled puts a value for each parameter of a path.
func filled(path string) string {
	values := map[string]string{
		"submitter": url.PathEscape(exampleSubmitter), "txId": absent, "proposalId": "1", "req_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
		"user_id": "7", "user": "7", "address_id": "1", "asset": "USDC", "endpoint": "shop", "id": "1",
	}
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	if strings.HasSuffix(path, "/by-request") {
		path += "?submitter=" + url.QueryEscape(exampleSubmitter) + "&requestId=" + url.QueryEscape("payout:2026-11-22:user-17:batch-3")
	}
	return path
}

// absent is a txId that no transaction has.
const absent = "00000000-0000-7000-8000-000000000000"
