// Starts Redoc, whose styles need the page's nonce.
Redoc.init("/explorer/openapi.yaml", { nonce: document.currentScript.nonce, payloadSampleIdx: 1 }, document.getElementById("api"));
